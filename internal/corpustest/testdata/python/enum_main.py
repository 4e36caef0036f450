import enum
class Colour(enum.Enum):
    RED = enum.auto()
    BLUE = enum.auto()
print(Colour.RED, repr(Colour.BLUE), Colour.__module__)
print(Colour["GREEN"])
