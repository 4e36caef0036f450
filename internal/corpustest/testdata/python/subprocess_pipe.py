import subprocess
p = subprocess.Popen(["tr", "a-z", "A-Z"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(p.communicate(b"shout"))
try:
    subprocess.run(["no-such-program"])
except FileNotFoundError as e:
    print(e)
