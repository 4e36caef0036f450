def documented(a, *, b=1):
    """Say what it does."""
help(documented)
