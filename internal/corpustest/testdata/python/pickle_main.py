import pickle
class Point:
    def __init__(self, x): self.x = x
    def __eq__(self, o): return self.x == o.x
p = Point(3)
s = pickle.dumps(p)
print(b"__main__" in s, pickle.loads(s) == p, Point.__module__, Point.__qualname__)
