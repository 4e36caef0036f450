import os, signal
print("to be killed", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
