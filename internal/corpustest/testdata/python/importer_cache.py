import sys
for p in sorted(sys.path_importer_cache):
    print(p, type(sys.path_importer_cache[p]).__name__)
