print("last line without newline")
print("x")