# corpus: {"args": ["start"]}
import os, sys
print(sys.argv, flush=True)
if sys.argv[1:] == ["start"]:
    os.execv(sys.executable, [sys.executable, __file__, "again"])
