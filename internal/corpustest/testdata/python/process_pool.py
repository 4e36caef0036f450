from multiprocessing import Pool
def square(x):
    return x * x
if __name__ == "__main__":
    with Pool(2) as pool:
        print(pool.map(square, range(8)))
