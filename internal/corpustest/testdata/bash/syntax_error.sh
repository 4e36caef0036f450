echo before
if true; then
  echo "unclosed
fi
