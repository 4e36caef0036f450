import threading, queue
q = queue.Queue()
data = threading.local()
data.x = "main"
def work():
    q.put(hasattr(data, "x"))
t = threading.Thread(target=work); t.start(); t.join()
print(q.get(), data.x)
