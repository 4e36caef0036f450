for i in 1 2 3; do (exit $i) & pids[$i]=$!; done
for i in 1 2 3; do wait "${pids[$i]}"; echo "$i: $?"; done
