exec("x = 1\0")
