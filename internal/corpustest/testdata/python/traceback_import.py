# corpus: {"files": {"helper.py": "def go():\n    # a comment\n    raise OSError(2, 'no such thing', 'x.txt')\n"}}
import helper
helper.go()
