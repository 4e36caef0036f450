import os, sys, atexit
atexit.register(print, "never")
sys.stdout.write("unflushed is lost")
os.write(1, b"written\n")
os._exit(17)
