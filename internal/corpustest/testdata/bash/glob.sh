# corpus: {"files": {"b.txt": "", "a.txt": ""}}
echo *.txt; echo *.none; shopt -s nullglob; echo *.none; echo "end"
