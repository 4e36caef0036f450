./data.txt 2>/dev/null; echo "code $?"
/workspace; echo "code $?"
