import subprocess, sys
r = subprocess.run([sys.executable, "-c", "import sys; print('child', sys.argv); sys.exit(3)", "x"], capture_output=True, text=True)
print(r.returncode, repr(r.stdout), repr(r.stderr))
print(subprocess.run("exit 5", shell=True).returncode)
print(subprocess.run(["sh", "-c", "kill -9 $$"]).returncode)
