# corpus: {"files": {"os.py": "shadow = True\n", "stat.py": "shadow = True\n", "collections.py": "shadow = True\n", "ctypes.py": "shadow = True\n", "signal.py": "shadow = True\n"}}
import os, stat, collections, ctypes, signal
print([getattr(m, "shadow", False) for m in (os, stat, collections, ctypes, signal)])
