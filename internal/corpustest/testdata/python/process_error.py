import multiprocessing as mp
def fail():
    raise ValueError("in a child")
if __name__ == "__main__":
    p = mp.get_context("fork").Process(target=fail, name="failing")
    p.start(); p.join()
    print("exit code", p.exitcode)
