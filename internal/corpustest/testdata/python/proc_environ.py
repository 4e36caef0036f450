# corpus: {"env": {"MARK": "1"}}
print(sorted(e.split("=")[0] for e in open("/proc/self/environ").read().split("\0") if e))
