import sys
sys.stdout.write("y" * 1000000)
sys.stdout.write("\n")
sys.stderr.write("z" * 100000)
