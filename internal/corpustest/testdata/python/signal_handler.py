import os, signal
def on(sig, frame):
    print("got", signal.Signals(sig).name, frame.f_code.co_name)
signal.signal(signal.SIGUSR1, on)
signal.signal(signal.SIGTERM, on)
def work():
    os.kill(os.getpid(), signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(1000): pass
work()
print("lives on")
