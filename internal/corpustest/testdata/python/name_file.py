import os
print(__name__)
print(__file__)
print(os.path.abspath(__file__))
print(__spec__, __package__, __doc__, __loader__.__class__.__name__)
print(__annotations__)
