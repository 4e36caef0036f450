(exit 3); echo $?
echo "$(exit 4)" $?; x=$(exit 5); echo $?
