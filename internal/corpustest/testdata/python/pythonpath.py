# corpus: {"env": {"PYTHONPATH": "/opt/x:/opt/y"}}
import sys
print(sys.path)
