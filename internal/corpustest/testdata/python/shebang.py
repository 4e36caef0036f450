#!/usr/bin/env python3
import sys
print("line", sys._getframe().f_lineno)
