import os, signal
print("to be interrupted", flush=True)
os.kill(os.getpid(), signal.SIGINT)
import time
time.sleep(5)
print("never")
