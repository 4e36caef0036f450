import os
print(os.getcwd(), os.environ.get("PWD"), os.path.exists("main.py"), os.path.expanduser("~"))
