import json, csv, io
print(json.dumps({"b": [1, 2.5, None, True], "a": "ü"}, sort_keys=True))
w = io.StringIO(); csv.writer(w).writerow(["a,b", 'q"q', 3]); print(repr(w.getvalue()))
