# corpus: {"env": {"PYTHONUNBUFFERED": "1"}}
import os, sys
print("unbuffered", sys.stdout.write_through)
os._exit(0)
