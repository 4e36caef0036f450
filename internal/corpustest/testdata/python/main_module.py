import sys
m = sys.modules['__main__']
print(m.__dict__ is globals(), m.__name__, type(m).__name__)
x = 42
print(m.x, sorted(vars(m)))
