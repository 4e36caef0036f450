read -r x; echo "code $? <$x>"
[ -t 0 ]; echo $?
[ -p /dev/stdin ]; echo $?
