# corpus: {"files": {"broken.py": "x = 1\ny = (\n"}}
import broken
