x=$(echo out; echo err >&2); echo "<$x>"; echo "$(printf 'a\n\n\n')|"
