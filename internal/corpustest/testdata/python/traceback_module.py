import traceback, sys
def f():
    raise LookupError("shown by hand")
try:
    f()
except LookupError:
    traceback.print_exc()
    print(traceback.format_exc())
    print(traceback.extract_stack())
    traceback.print_stack()
