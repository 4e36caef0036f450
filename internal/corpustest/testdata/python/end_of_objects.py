# What lives until the end is taken down at the end, in cycles too.
import os
import sys


class Told:
    def __init__(self, name):
        self.name = name

    def __del__(self, write=os.write):
        write(1, self.name.encode() + b" goes\n")


class Pair:
    pass


def pending():
    try:
        yield
    finally:
        os.write(1, b"generator is closed\n")


kept = Told("kept")
one, two = Pair(), Pair()
one.other, two.other, one.told = two, one, Told("cycle")
del one, two
os.attached = Told("on a module of the start")
sys.attached = Told("on sys")
going = pending()
next(going)
unflushed = open("/tmp/unflushed", "w")
unflushed.write("written at the end")
print("end")
