import sys
print(1, "a", None, [1, (2,)], {"k": 1.5}, sep="|", end="!\n", file=sys.stderr)
print("no newline", end="")
