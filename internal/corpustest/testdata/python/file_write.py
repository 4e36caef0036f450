# corpus: {"readonly": false}
import os
with open("made.txt", "w") as f:
    f.write("hello")
print(os.path.getsize("made.txt"), sorted(os.listdir(".")))
os.rename("made.txt", "moved.txt")
print(open("moved.txt").read())
