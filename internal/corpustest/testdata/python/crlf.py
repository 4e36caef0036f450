print("one")
print("two")
raise ValueError("line three")
