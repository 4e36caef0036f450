# corpus: {"args": ["one"]}
echo "$0" "$BASH_SOURCE" "${BASH_SOURCE[0]}" "$LINENO"
