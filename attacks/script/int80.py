# System calls of the 32-bit kind, by which filters for one kind were passed by.
import ctypes, mmap, os, sys, platform
if platform.machine() != "x86_64":
    print("STOPPED int80: not on this machine"); sys.exit(0)
pid = os.fork()
if pid == 0:
    # mov eax, 26 (ptrace); mov ebx, 16 (attach); mov ecx, 1; int 0x80; ret
    code = bytes.fromhex("53b81a000000bb10000000b901000000cd805bc3")
    m = mmap.mmap(-1, 4096, prot=7)
    m.write(code)
    f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))
    os._exit(0 if f() < 0 else 7)
_, status = os.waitpid(pid, 0)
if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 7:
    print("THROUGH int80 ptrace of PID 1")
else:
    print("STOPPED int80:", status)
