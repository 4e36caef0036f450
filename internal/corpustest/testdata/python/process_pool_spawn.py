# corpus: {"args": ["kept"]}
import sys
from multiprocessing import get_context
def show(x):
    return x, sys.argv[1:], __name__
if __name__ == "__main__":
    with get_context("spawn").Pool(1) as pool:
        print(pool.map(show, [1, 2]))
