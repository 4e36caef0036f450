import os
print(os.waitstatus_to_exitcode(os.system("exit 4")), flush=True)
os.system("echo from the shell >&2")
