import sys
sys.stdout.close()
sys.stderr.write("stderr is still there\n")
