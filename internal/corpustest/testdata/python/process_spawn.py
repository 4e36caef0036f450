import multiprocessing as mp
class Thing:
    def __init__(self, n): self.n = n
def work(thing, conn):
    conn.send((thing.n, type(thing).__module__, __name__))
    conn.close()
if __name__ == "__main__":
    ctx = mp.get_context("spawn")
    a, b = ctx.Pipe()
    p = ctx.Process(target=work, args=(Thing(7), b))
    p.start()
    print(a.recv())
    p.join()
    print(p.exitcode)
