import threading
started = threading.Event()
def forever():
    started.set()
    threading.Event().wait()
threading.Thread(target=forever, daemon=True).start()
started.wait()
print("a daemon holds nobody up")
