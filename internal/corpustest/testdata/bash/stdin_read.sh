# corpus: {"stdin": "first line\nsecond  line\nlast"}
read -r a
echo "<$a>"
while IFS= read -r l; do echo "[$l]"; done
echo "left: <$l>"
