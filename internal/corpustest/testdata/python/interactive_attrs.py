import sys
print(hasattr(sys, "ps1"), hasattr(sys, "last_traceback"), sys.flags.interactive, sys.flags.inspect)
print(sys.warnoptions, sys._xoptions)
