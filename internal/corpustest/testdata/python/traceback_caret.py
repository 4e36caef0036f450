a = {"x": {"y": None}}
b = [1, 2, 3]
print(b[0] + a["x"]["y"]["z"] * 2)
