import sys, threading
t = threading.Thread(target=lambda: sys.exit(9))
t.start()
t.join()
print("the thread is over")
sys.exit(4)
