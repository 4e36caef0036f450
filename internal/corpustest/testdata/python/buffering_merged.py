import os, sys
os.dup2(1, 2)
print("out is buffered")
print("err is not", file=sys.stderr)
sys.stderr.write("half a line of err, ")
print("out again")
sys.stdout.flush()
sys.stderr.write("rest\n")
print("out at the end")
