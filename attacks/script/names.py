# Names that other systems trip over.
import os
os.chdir("/workspace")
for name in [b"con", b"NUL", b"a\\..\\b", b"-rf", b"--help", b"a\nb", b"\x1b[2J", b"\xff\xfe", "\u202egpj.exe".encode(), b" ", b"...",
             b"A", b"a", b"~", b"$(id)", b"`id`", b"x;y", b"%2e%2e%2f", b"n" * 255, "é".encode(), "e\u0301".encode(), b".git"]:
    try:
        with open(name, "wb") as f:
            f.write(b"x")
    except OSError as e:
        print("STOPPED", name, e)
print("STOPPED names: the suite collects them")
