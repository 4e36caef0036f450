print("ok")
print("lone \udc80 surrogate")
