import sys, locale, os
for s in (sys.stdin, sys.stdout, sys.stderr):
    print(s.encoding, s.errors, s.line_buffering, s.write_through, s.newlines, s.name, s.mode)
print(sys.getdefaultencoding(), sys.getfilesystemencoding(), sys.getfilesystemencodeerrors(), locale.getpreferredencoding(False), sys.flags.utf8_mode)
print(type(sys.stdout).__name__, type(sys.stdout.buffer).__name__, type(sys.stdout.buffer.raw).__name__, sys.stdout.fileno())
print(sys.stdout is sys.__stdout__, sys.stdin is sys.__stdin__, sys.stderr is sys.__stderr__)
