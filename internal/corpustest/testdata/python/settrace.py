import sys, threading
print(sys.gettrace(), sys.getprofile(), threading.gettrace() if hasattr(threading, "gettrace") else None)
lines = []
def trace(frame, what, arg):
    lines.append((what, frame.f_lineno))
    return trace
def f():
    x = 1
    return x
sys.settrace(trace); f(); sys.settrace(None)
print(lines)
