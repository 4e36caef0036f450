import socket
try:
    socket.create_connection(("192.0.2.1", 80), timeout=0.5)
except OSError as e:
    print("no network:", e.errno is not None or type(e).__name__)
