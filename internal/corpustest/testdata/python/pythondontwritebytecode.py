# corpus: {"env": {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1"}}
import sys
print(sys.dont_write_bytecode, sys.flags.utf8_mode)
