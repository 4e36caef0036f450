import sys
seen = []
sys.addaudithook(lambda e, a: seen.append(e) if e == "open" else None)
open("/dev/null").close()
print(seen)
