import os, sys
sys.stdout.write("x" * 10000)
sys.stderr.write("kept")
os._exit(1)
