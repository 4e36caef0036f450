# corpus: {"env": {"PYTHONHASHSEED": "0"}}
import sys
print(hash("stable"), sys.flags.hash_randomization)
