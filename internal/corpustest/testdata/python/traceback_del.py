class Del:
    def __call__(self):
        raise RuntimeError("in del")
    def __repr__(self):
        return "<its del>"
class Bad:
    __del__ = Del()
x = Bad()
del x
print("goes on")
