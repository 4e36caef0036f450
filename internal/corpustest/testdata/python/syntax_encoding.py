# -*- coding: no-such-encoding -*-
print("x")
