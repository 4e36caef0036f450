# -*- coding: utf-8 -*-
s = "grüße"
print(s, len(s), s.encode("latin-1"))
