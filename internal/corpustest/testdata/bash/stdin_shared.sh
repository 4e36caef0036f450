# corpus: {"stdin": "one\ntwo\nthree\n"}
read -r first
echo "first: $first"
head -n 1
echo end
