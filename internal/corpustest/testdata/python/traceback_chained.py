class Custom(Exception):
    def __str__(self):
        return "custom: %s" % (self.args,)

def load():
    try:
        {}["missing"]
    except KeyError as e:
        raise Custom("x", 1) from e

try:
    load()
except Custom:
    int("not a number")
