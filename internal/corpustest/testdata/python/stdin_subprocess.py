# corpus: {"stdin": "line one\nline two\n"}
import subprocess, sys
print("first", flush=True)
subprocess.run(["cat"])
print("last")
