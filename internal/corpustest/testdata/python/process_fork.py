import multiprocessing as mp
def work(q, n):
    q.put((n, __name__, mp.current_process().name))
if __name__ == "__main__":
    mp.set_start_method("fork")
    q = mp.SimpleQueue()
    for i in range(2):
        p = mp.Process(target=work, args=(q, i))
        p.start(); p.join()
        print(q.get(), p.exitcode)
