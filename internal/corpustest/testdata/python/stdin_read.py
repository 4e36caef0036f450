# corpus: {"stdin": "first\nsecond\nno newline at the end"}
import sys
print(repr(sys.stdin.read()))
print(repr(sys.stdin.read()))
