# corpus: {"stdin": "abc"}
import os, stat, fcntl
print(stat.S_ISFIFO(os.fstat(0).st_mode), stat.S_ISFIFO(os.fstat(1).st_mode), stat.S_ISFIFO(os.fstat(2).st_mode))
print([fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE for fd in (0, 1, 2)], [bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_NONBLOCK) for fd in (0, 1, 2)])
print([os.get_inheritable(fd) for fd in (0, 1, 2)])
