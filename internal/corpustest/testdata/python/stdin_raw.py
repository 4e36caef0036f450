# corpus: {"stdin": "raw bytes \u00e9\u0000\u0001 end"}
import os
data = b""
while chunk := os.read(0, 4):
    data += chunk
print(data)
