# corpus: {"args": ["a b"]}
tr '\0' '\n' </proc/$$/cmdline
