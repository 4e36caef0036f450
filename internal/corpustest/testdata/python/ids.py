import os
print(os.getuid(), os.geteuid(), os.getgid(), os.getgroups(), os.environ.get("USER"))
import pwd
print(pwd.getpwuid(os.getuid()).pw_name, pwd.getpwuid(os.getuid()).pw_dir)
