x = 10
def f():
    global x
    x += 1
    return eval("x * 2")
print(f(), x, eval("__name__"), sorted(locals()) == sorted(globals()))
