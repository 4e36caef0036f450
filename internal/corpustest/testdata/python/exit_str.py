import sys
print("out")
sys.exit("a message for stderr ü")
