# The program's module has what it has bare, in the same order.
import sys

print(list(vars(sys.modules["__main__"])))
print({k: repr(v).split(" at ")[0] for k, v in vars().copy().items() if k.startswith("__") and k != "__loader__"})
print(type(__loader__), __builtins__ is sys.modules["builtins"], sys.modules["__main__"].__dict__ is globals())
print(list(sys.modules).index("__main__"))
import __main__
print(__main__ is sys.modules["__main__"])
