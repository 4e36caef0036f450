import threading, sys
threading.excepthook = lambda a: print("hook", a.exc_type.__name__, a.thread.name)
t = threading.Thread(target=lambda: 1 / 0, name="tt"); t.start(); t.join()
