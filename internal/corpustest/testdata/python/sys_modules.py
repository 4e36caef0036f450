import sys
for name in sorted(sys.modules):
    print(name)
