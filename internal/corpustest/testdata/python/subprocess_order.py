import subprocess, sys
print("parent first", flush=True)
subprocess.run(["echo", "child"])
print("parent last")
