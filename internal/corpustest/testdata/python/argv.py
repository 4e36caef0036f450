# corpus: {"args": ["one", "two words", "", "-x", "--flag=1", "üñí", "$HOME", "'q'"]}
import sys
for i, a in enumerate(sys.argv):
    print(i, repr(a))
print(sys.orig_argv[1:])
