# corpus: {"files": {"mod.py": "import sys\nprint(__name__, __file__, sys.argv)\n"}}
import runpy, sys
g = runpy.run_path("mod.py", run_name="renamed")
print(sorted(k for k in g if not k.startswith("__")))
runpy.run_module("mod", run_name="__main__", alter_sys=True)
