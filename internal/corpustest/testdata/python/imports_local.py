# corpus: {"files": {"tool.py": "NAME = __name__\nFILE = __file__\ndef who():\n    import __main__\n    return __main__.__file__\n", "data.txt": "text of an input"}}
import tool
print(tool.NAME, tool.FILE, tool.who())
print(open("data.txt").read())
