# corpus: {"files": {"json.py": "shadow = True\n", "random.py": "shadow = True\n"}}
import json, random
print(getattr(json, "shadow", False), getattr(random, "shadow", False))
