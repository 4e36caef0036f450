trap 'echo "trap, code $?"' EXIT
echo body
exit 6
