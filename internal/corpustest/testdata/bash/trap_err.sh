trap 'echo "error at $LINENO"' ERR
false
echo goes on
