# corpus: {"stdin_repeat": 200000, "stdin": "x"}
wc -c
