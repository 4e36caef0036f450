import os
print(oct(os.umask(0)))
