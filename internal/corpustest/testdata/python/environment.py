import os
for k in sorted(os.environ):
    print(k, "=", os.environ[k])
