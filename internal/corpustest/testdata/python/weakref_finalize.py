import weakref
class A: pass
a = A()
weakref.finalize(a, print, "finalized")
weakref.finalize(A, print, "at exit")
del a
print("end of body")
