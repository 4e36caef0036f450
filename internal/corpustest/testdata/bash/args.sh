# corpus: {"args": ["one", "two words", "", "*", "$HOME", "-x"]}
echo "$#"
for a in "$@"; do printf '<%s>\n' "$a"; done
printf '<%s>\n' "$*"
shift 2; echo "$1|$2"
