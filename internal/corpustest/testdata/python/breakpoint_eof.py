def f():
    x = 1
    breakpoint()
f()
