from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    print(list(pool.map(lambda x: x * x, range(10))))
    f = pool.submit(int, "x")
    print(type(f.exception()).__name__)
