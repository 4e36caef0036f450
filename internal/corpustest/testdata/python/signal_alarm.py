import signal
def on(sig, frame):
    raise TimeoutError("alarm")
signal.signal(signal.SIGALRM, on)
signal.setitimer(signal.ITIMER_REAL, 0.05)
try:
    signal.pause()
except TimeoutError as e:
    print("raised", e)
