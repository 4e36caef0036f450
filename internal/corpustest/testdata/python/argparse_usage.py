# corpus: {"args": ["--bad"]}
import argparse
p = argparse.ArgumentParser()
p.add_argument("--good", type=int)
p.parse_args()
