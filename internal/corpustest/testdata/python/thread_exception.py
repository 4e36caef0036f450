import threading
def work():
    raise ValueError("in a thread")
t = threading.Thread(target=work, name="worker-a")
t.start()
t.join()
print("main goes on")
