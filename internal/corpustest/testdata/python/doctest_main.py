"""
>>> 1 + 1
2
>>> double(4)
9
"""
def double(x):
    return 2 * x
import doctest
print(doctest.testmod())
