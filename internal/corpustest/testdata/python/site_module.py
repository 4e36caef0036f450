import site, sys
print("site" in sys.modules, site.ENABLE_USER_SITE, site.getusersitepackages())
print([p for p in sys.meta_path and [getattr(m, "__name__", type(m).__name__) for m in sys.meta_path]], len(sys.path_hooks))
