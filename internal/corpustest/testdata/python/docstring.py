"""The module's own text."""
print(__doc__)
