timeout 0.1 sleep 5; echo $?
