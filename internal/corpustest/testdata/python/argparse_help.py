# corpus: {"args": ["-h"]}
import argparse
p = argparse.ArgumentParser(description="tells its name")
p.add_argument("n", type=int, nargs="*")
p.parse_args()
