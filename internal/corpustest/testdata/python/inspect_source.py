import inspect
def f(a, b=2):
    """Doc."""
    return a + b  # a comment
class K:
    x = 1
print(inspect.getsource(f), end="")
print(inspect.getsource(K), end="")
print(inspect.getsourcefile(f), inspect.getmodule(f).__name__, inspect.signature(f), f.__code__.co_firstlineno)
