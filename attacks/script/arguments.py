# More arguments and variables than a kernel takes.
import os
for what, args, env in [("arguments", ["x" * 100000] * 100, {}), ("one argument", ["x" * (1 << 22)], {}), ("variables", [], {"x%d" % i: "y" * 100000 for i in range(100)})]:
    try:
        pid = os.posix_spawn("/bin/true", ["true"] + args, env)
        os.waitpid(pid, 0)
        print("STOPPED", what, "were taken, and nobody minded")
    except OSError as e:
        print("STOPPED", what, e)
