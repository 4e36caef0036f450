import sys
print("bye")
sys.exit(0)
