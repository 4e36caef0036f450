# Holds an interpreter back between its own start and the moment at which it
# would open the program: the program is then run by the interpreter itself, and
# finds nothing of this. It stands in for sitecustomize, which the interpreter
# imports last before a program. Only modules that every start has imported are
# used here.
def hold():
    import os
    import posix
    import sys

    place = os.environ.pop("AUREA_LAUNCHER", None)
    if place is None:
        return

    # The real one comes first: it is a part of the start.
    sys.path[:] = [p for p in sys.path if p != place]
    sys.path_importer_cache.pop(place, None)
    del sys.modules["sitecustomize"]
    try:
        import sitecustomize
    except ImportError:
        pass

    # Nothing is left to be found.
    for inner in (place + "/__pycache__", place):
        try:
            for name in posix.listdir(inner):
                try:
                    posix.unlink(inner + "/" + name)
                except OSError:
                    pass
            posix.rmdir(inner)
        except OSError:
            pass

    def take(n):
        data = b""
        while len(data) < n:
            more = posix.read(0, n - len(data))
            if not more:
                posix._exit(0)  # nobody wants it
            data += more
        return data

    # What the start has made stays until the end anyway: the collector need not
    # look at it again, above all not three times while the interpreter ends.
    import gc

    gc.freeze()
    del sys.modules["gc"]
    # But the program's own module is its own, and is taken down with it.
    main = type(sys)("__main__")
    main.__dict__.update(sys.modules["__main__"].__dict__)
    sys.modules["__main__"] = main
    del main

    born = posix.uname().nodename
    posix.write(1, b"aurea: ready\n")
    # Exactly as many bytes as there are: those behind them are the program's.
    fields = take(int(take(10))).split(b"\0")
    count = int(fields[0])
    args = [os.fsdecode(a) for a in fields[1 : 1 + count]]
    coerced = os.environb.get(b"LC_CTYPE")  # a start in the C locale sets it
    os.environb.clear()
    for entry in fields[1 + count : -1]:
        name, _, value = entry.partition(b"=")
        os.environb[name] = value
    if coerced is not None:
        os.environb.setdefault(b"LC_CTYPE", coerced)
    sys.argv[1:] = args
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[2:] = args

    # In a fork of the sandbox, which has a name of its own, everything that was
    # seeded by now is what it is in the others: it is seeded again.
    if posix.uname().nodename != born:
        for name, renew in (
            ("random", lambda m: m.seed()),
            ("numpy.random", lambda m: m.seed()),
            ("_ssl", lambda m: m.RAND_add(os.urandom(32), 32.0)),
        ):
            if name in sys.modules:
                renew(sys.modules[name])


hold()
del hold
if __import__("sys").modules.get("sitecustomize") is None:
    raise ImportError("No module named 'sitecustomize'", name="sitecustomize")
