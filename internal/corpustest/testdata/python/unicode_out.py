import sys
print("ASCII ü € 漢字 😀 \u202e")
sys.stdout.buffer.write(b"\xff\xfe raw\n")
sys.stderr.write("err ü\n")
