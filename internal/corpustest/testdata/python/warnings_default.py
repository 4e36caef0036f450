import warnings
def old():
    warnings.warn("old is old", DeprecationWarning, stacklevel=2)
old()
warnings.warn("user text")
warnings.warn("user text")
print(warnings.filters[:2] and [f[0] for f in warnings.filters])
