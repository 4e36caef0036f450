print("after a byte order mark")
