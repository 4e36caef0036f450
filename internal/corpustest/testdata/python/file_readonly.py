import os
for what in (lambda: open("main.py", "a"), lambda: os.remove("main.py"), lambda: open("new.txt", "w"), lambda: os.mkdir("d"), lambda: os.chmod("main.py", 0o777)):
    try:
        what()
        print("allowed")
    except OSError as e:
        print(type(e).__name__, e.errno)
