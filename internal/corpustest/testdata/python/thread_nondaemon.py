import threading
go = threading.Event()
def late():
    go.wait()
    print("after main has ended")
threading.Thread(target=late).start()
print("main ends")
go.set()
