import sys
print("out 1")
print("err 1", file=sys.stderr)
print("out 2")
sys.stdout.flush()
print("err 2", file=sys.stderr)
