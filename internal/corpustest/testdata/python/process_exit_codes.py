import multiprocessing as mp, sys, os, signal
def code(n): sys.exit(n)
def die(): os.kill(os.getpid(), signal.SIGKILL)
if __name__ == "__main__":
    ctx = mp.get_context("fork")
    for target, args in ((code, (0,)), (code, (3,)), (code, ("text",)), (die, ())):
        p = ctx.Process(target=target, args=args); p.start(); p.join()
        print(p.exitcode, flush=True)
