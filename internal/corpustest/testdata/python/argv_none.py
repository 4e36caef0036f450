import sys
print(sys.argv, len(sys.argv))
