# corpus: {"stdin": "one\ntwo\nthree\n"}
import sys, os
print(repr(sys.stdin.readline()))
print(repr(sys.stdin.read(2)))
