# Root of a user namespace of its own: what it may mount must bring nothing of
# the host with it, and the guest must stay out of reach.
import ctypes, os, sys
mark, paths = sys.argv[1], sys.argv[2:]
libc = ctypes.CDLL(None, use_errno=True)
NEWUSER, NEWNS, NEWPID, NEWNET = 0x10000000, 0x00020000, 0x20000000, 0x40000000
if libc.unshare(NEWUSER | NEWNS) != 0:
    print("STOPPED unshare:", os.strerror(ctypes.get_errno()))
    sys.exit(0)
print("STOPPED unshare: allowed, and worth nothing outside of the sandbox:")
try:
    with open("/proc/self/setgroups", "w") as f: f.write("deny")
except OSError: pass
for name in ("uid_map", "gid_map"):
    try:
        with open("/proc/self/" + name, "w") as f: f.write("0 0 1")
        print("THROUGH", name, "of the sandbox's root")
    except OSError as e: print("STOPPED", name, e)
sys.stdout.flush()
os.execv("./attack", ["./attack", "remount", mark] + paths)
