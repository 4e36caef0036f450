set -x
a=1
echo "$a"
[[ $a == 1 ]] && b=$((a + 1))
