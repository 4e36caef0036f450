b = bytearray(64 << 20)
b[::4096] = b"x" * len(b[::4096])
print(len(b))
