read -t 0.05 x; echo $?
