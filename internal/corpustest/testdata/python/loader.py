import sys
print(type(__loader__).__name__, __loader__.name, __loader__.path)
print(__loader__.get_filename('__main__'))
print(__loader__.get_data(__file__)[:10])
print(getattr(sys.modules['__main__'], '__cached__', 'none'))
