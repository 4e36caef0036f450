def g():
    try:
        yield 1
    finally:
        print("closed")
it = g()
print(next(it))
