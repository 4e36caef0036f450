# corpus: {"env": {"GREETING": "hello world", "EMPTY": ""}}
echo "$GREETING" "${EMPTY-unset}" "${EMPTY:-default}"
NEW=1 sh -c 'echo $NEW $GREETING'
