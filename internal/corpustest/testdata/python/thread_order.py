import threading
out = []
def work(n):
    out.append(n)
ts = [threading.Thread(target=work, args=(i,), name=f"w{i}") for i in range(8)]
[t.start() for t in ts]
[t.join() for t in ts]
print(sorted(out), threading.current_thread().name, threading.main_thread() is threading.current_thread())
print(threading.active_count(), [t.name for t in threading.enumerate()])
