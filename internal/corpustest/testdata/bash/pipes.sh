printf 'b\na\nc\n' | sort | tr a-z A-Z | sed 's/^/> /'
echo "${PIPESTATUS[*]}"
