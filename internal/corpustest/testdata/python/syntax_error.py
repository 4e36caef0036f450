print("this never prints")
def f(:
    pass
