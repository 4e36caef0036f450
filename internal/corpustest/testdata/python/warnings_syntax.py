x = "\d"
print(x is "\d", 1 if x == "\\d" else 0)
