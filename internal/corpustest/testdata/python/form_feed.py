print("a")

print("b")
1/0
