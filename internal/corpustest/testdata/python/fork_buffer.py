import os
print("buffered text is written twice")
pid = os.fork()
if pid:
    os.waitpid(pid, 0)
