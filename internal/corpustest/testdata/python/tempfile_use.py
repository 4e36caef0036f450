import tempfile, os
with tempfile.NamedTemporaryFile("w+", suffix=".txt") as f:
    f.write("x"); f.flush()
    print(os.path.dirname(f.name), os.path.getsize(f.name), oct(os.stat(f.name).st_mode))
with tempfile.TemporaryDirectory() as d:
    print(os.path.dirname(d), os.listdir(d))
