import atexit
atexit.register(print, "first registered")
atexit.register(print, "second registered")
@atexit.register
def third():
    print("third registered")
print("body")
