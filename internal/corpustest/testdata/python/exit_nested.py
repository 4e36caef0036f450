import sys
try:
    try:
        sys.exit(3)
    finally:
        print("finally runs")
except SystemExit as e:
    print("caught", e.code)
    raise
