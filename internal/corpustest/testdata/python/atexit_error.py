import atexit, sys
atexit.register(print, "runs after the broken one")
class Broken:
    def __call__(self):
        raise ValueError("in atexit")
    def __repr__(self):
        return "<broken>"
atexit.register(Broken())
sys.exit(2)
