# corpus: {"env": {"BASH_ENV": "/workspace/pre.sh"}, "files": {"pre.sh": "echo from BASH_ENV; pre=1\n"}}
echo "body $pre"
