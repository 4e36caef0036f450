# corpus: {"stdin_repeat": 200000, "stdin": "x"}
import sys, hashlib
data = sys.stdin.read()
print(len(data), hashlib.sha256(data.encode()).hexdigest()[:16])
