print(sorted(globals()))
print(sorted(k for k in dir() if not k.startswith('__')))
