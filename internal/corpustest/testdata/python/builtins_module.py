import builtins
print(__builtins__ is builtins, type(__builtins__).__name__)
print(len(dir(builtins)) > 150, 'print' in dir(__builtins__))
print([n for n in ('exit', 'quit', 'copyright', 'help', '_') if hasattr(builtins, n)])
