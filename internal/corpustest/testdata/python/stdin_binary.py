# corpus: {"stdin": "caf\u00e9 \ud83d\ude00"}
import sys
b = sys.stdin.buffer.read()
print(len(b), b)
