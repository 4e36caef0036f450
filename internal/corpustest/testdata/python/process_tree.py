import os
print(os.getpid() > 1, os.getppid() >= 1, os.getpgrp() == os.getpid(), os.getsid(0) == os.getpid())
