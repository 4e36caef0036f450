# corpus: {"readonly": false, "files": {"m.py": "x = 1\n"}}
import os, m
print(os.path.isdir("__pycache__"), os.path.basename(m.__cached__))
