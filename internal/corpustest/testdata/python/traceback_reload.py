import sys, linecache
linecache.clearcache()
def f():
    raise ValueError("after the cache was cleared")
f()
