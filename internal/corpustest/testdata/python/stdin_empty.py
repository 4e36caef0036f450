import sys
print(repr(sys.stdin.read()), sys.stdin.isatty(), sys.stdout.isatty(), sys.stderr.isatty())
