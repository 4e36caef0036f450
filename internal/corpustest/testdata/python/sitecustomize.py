# corpus: {"files": {"sitecustomize.py": "print('must not be run by accident')\n", "usercustomize.py": "print('nor this')\n"}}
print("body")
