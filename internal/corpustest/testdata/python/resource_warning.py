def leak():
    open("/dev/null")
leak()
print("no warning by default")
