yes | head -2
echo "${PIPESTATUS[@]}"
