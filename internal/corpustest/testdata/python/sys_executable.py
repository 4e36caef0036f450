import sys
print(sys.executable, sys.prefix, sys.base_prefix, sys.exec_prefix)
print(sys.version_info[:2], sys.implementation.name, sys.platform, sys.byteorder)
