exec("y = 5")
print(y, "y" in globals())
def f():
    exec("z = 1")
    return "z" in globals()
print(f())
