coproc { read -r l; echo "got $l"; }
echo hi >&"${COPROC[1]}"; read -r a <&"${COPROC[0]}"; echo "$a"
