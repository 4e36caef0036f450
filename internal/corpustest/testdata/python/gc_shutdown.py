class Late:
    def __del__(self): print("del at the end")
keep = Late()
print("body")
