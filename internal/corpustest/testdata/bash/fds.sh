ls /proc/self/fd
