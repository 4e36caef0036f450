import os, signal
def on(sig, frame):
    raise RuntimeError("from the handler")
signal.signal(signal.SIGUSR1, on)
os.kill(os.getpid(), signal.SIGUSR1)
for _ in range(100): pass
