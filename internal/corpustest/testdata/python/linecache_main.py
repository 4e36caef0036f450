import linecache
# the second line
print(repr(linecache.getline(__file__, 2)), repr(linecache.getline("main.py", 1)))
