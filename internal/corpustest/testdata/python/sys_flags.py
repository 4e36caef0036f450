import sys
print(sys.flags)
print(sys.dont_write_bytecode, sys.flags.safe_path, sys.pycache_prefix)
