import os, sys
print("printed once", flush=True)
pid = os.fork()
if pid == 0:
    print("child", __name__, flush=True)
    os._exit(6)
_, status = os.waitpid(pid, 0)
print("parent saw", os.waitstatus_to_exitcode(status))
