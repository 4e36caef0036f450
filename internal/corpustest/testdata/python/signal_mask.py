for line in open("/proc/self/status"):
    if line.startswith(("SigBlk", "SigIgn", "SigCgt")):
        print(line.split()[0], int(line.split()[1], 16) & 0x7fffffff)
