import ctypes
libc = ctypes.CDLL(None)
print(libc.abs(-5), libc.getpid() == __import__("os").getpid())
