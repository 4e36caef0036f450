# Any way out, when there should be none. Arguments: addresses of the host.
import socket, sys
def tried(name, f):
    try:
        f()
        print("THROUGH", name)
    except Exception as e:
        print("STOPPED", name, e)
def tcp(host, port):
    s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    s.settimeout(1)
    s.connect((host, port))
def udp(host, port):
    s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    s.sendto(b"x", (host, port))
for address in sys.argv[1:]:
    host, port = address.rsplit(":", 1)
    tried("host " + address, lambda: tcp(host, int(port)))
for host in ["192.0.2.1", "169.254.169.254", "10.0.0.1", "172.17.0.1", "192.168.0.1", "100.100.100.200", "2001:db8::1", "fd00:ec2::254", "fe80::1"]:
    tried("tcp " + host, lambda: tcp(host, 80))
    tried("udp " + host, lambda: udp(host, 53))
tried("name", lambda: socket.getaddrinfo("metadata.google.internal", 80))
tried("multicast", lambda: udp("224.0.0.251", 5353))
tried("broadcast", lambda: udp("255.255.255.255", 67))
