# corpus: {"env": {"PYTHONOPTIMIZE": "1"}}
assert False, "not checked"
print(__debug__)
