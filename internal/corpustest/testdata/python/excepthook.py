import sys
def hook(kind, value, tb):
    print("hooked:", kind.__name__, value, tb.tb_lineno, tb.tb_next, file=sys.stderr)
sys.excepthook = hook
raise ValueError("caught by the hook")
