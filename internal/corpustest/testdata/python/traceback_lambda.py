run = lambda f: f()
run(lambda: (yield_ := undefined_name))
