import sys
print(sys.flags.hash_randomization, len({hash(str(i)) for i in range(100)}))
