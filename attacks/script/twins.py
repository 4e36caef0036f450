# Names that are one on some systems and two on others.
import os

os.chdir("/workspace")
os.makedirs("twins")
for name in ("readme", "README", "ReadMe", "caf\u00e9", "cafe\u0301"):
    with open("twins/" + name, "w") as f:
        f.write(name)
n = len(os.listdir("twins"))
print("STOPPED twins: %d files, for who collects" % n if n == 5 else "THROUGH twins: one took the other's place")
