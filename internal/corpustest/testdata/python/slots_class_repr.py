class A:
    __slots__ = ("x",)
    class B: pass
def f():
    class L: pass
    return L
print(A, A.B, f(), f().__qualname__)
print(f.__module__, A.__module__)
