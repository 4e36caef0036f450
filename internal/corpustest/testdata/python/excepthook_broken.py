import sys
def hook(*args):
    raise TypeError("the hook fails")
sys.excepthook = hook
raise ValueError("original")
