def a(n):
    if n == 0:
        raise ValueError("deep",
                         "and wide")
    return b(n - 1)

def b(n):
    return a(n) + 1

class C:
    def m(self):
        return [a(i) for i in (3,)]

C().m()
