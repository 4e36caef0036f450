import gc, sys
print(gc.isenabled(), gc.get_threshold(), len(gc.garbage), gc.get_debug())
print(len(gc.callbacks), sys.getswitchinterval(), sys.getrecursionlimit())
