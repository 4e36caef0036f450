# corpus: {"args": ["a b", "c"]}
print(open("/proc/self/cmdline").read().split("\0"))
print(open("/proc/self/comm").read().strip())
