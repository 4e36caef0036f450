import os
d = os.environ["AUREA_ARTIFACTS"]
with open(os.path.join(d, "a.txt"), "w") as f:
    f.write("an artifact")
print(sorted(os.listdir(d)))
