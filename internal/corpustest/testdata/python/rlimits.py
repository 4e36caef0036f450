import resource
for n in ("RLIMIT_CORE", "RLIMIT_STACK", "RLIMIT_NOFILE"):
    print(n, resource.getrlimit(getattr(resource, n)))
