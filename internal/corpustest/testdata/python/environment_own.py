# corpus: {"env": {"GREETING": "hello world", "EMPTY": "", "UNI": "ü", "PATH_LIKE": "/a:/b"}}
import os
print([os.environ.get(k) for k in ("GREETING", "EMPTY", "UNI", "PATH_LIKE", "NOT_SET")])
os.environ["NEW"] = "child sees it"
os.system("echo $NEW $GREETING")
