try:
    1 / 0
except ZeroDivisionError:
    raise RuntimeError("clean") from None
