import sys
def f(): pass
print(f.__code__.co_filename, sys._getframe().f_code.co_name, sys._getframe().f_code.co_filename, sys._getframe().f_back)
