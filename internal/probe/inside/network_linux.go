package inside

import (
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The addresses are of the blocks that are kept for documentation, and of the
// metadata service of rented machines: nobody is bothered if one gets out.
func networkAttempts() []attempt {
	return []attempt{
		{"network-tcp", func(arguments) error { return connect4(unix.SOCK_STREAM, [4]byte{192, 0, 2, 1}, 80) }},
		{"network-udp", func(arguments) error { return connect4(unix.SOCK_DGRAM, [4]byte{198, 51, 100, 1}, 53) }},
		{"network-private", func(arguments) error { return connect4(unix.SOCK_STREAM, [4]byte{10, 0, 0, 1}, 80) }},
		{"network-metadata", func(arguments) error { return connect4(unix.SOCK_STREAM, [4]byte{169, 254, 169, 254}, 80) }},
		{"network-ipv6", func(arguments) error {
			fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer func() { _ = unix.Close(fd) }()
			return route(unix.Connect(fd, &unix.SockaddrInet6{Port: 80, Addr: [16]byte{0x20, 0x01, 0x0d, 0xb8, 15: 1}}))
		}},
		{"network-host", reachHost},
		{"network-interfaces", otherInterface},
		{"network-abstract-socket", func(a arguments) error {
			return connectUnix("@" + a.abstract)
		}},
		{"network-engine-socket", func(arguments) error {
			var tries []func() error
			for _, path := range []string{
				"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock",
				"/run/podman/podman.sock", "/run/dbus/system_bus_socket",
			} {
				tries = append(tries, func() error { return connectUnix(path) })
			}
			return all(tries...)
		}},
		{"network-raw", func(arguments) error {
			return all(
				func() error { return socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP) },
				func() error { return socket(unix.AF_INET6, unix.SOCK_RAW, unix.IPPROTO_ICMPV6) },
				func() error { return socket(unix.AF_PACKET, unix.SOCK_RAW, 0x0300) },
				func() error { return socket(unix.AF_PACKET, unix.SOCK_DGRAM, 0x0300) },
			)
		}},
		{"network-families", func(arguments) error {
			return all(
				func() error { return socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0) },
				func() error { return socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0) },
				func() error { return socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER) },
				func() error { return socket(unix.AF_BLUETOOTH, unix.SOCK_RAW, 1) },
			)
		}},
	}
}

func socket(family, kind, protocol int) error {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return err
	}
	_ = unix.Close(fd)
	return nil
}

// route judges the answer to a connect that does not wait: that the kernel
// would send anything at all is too much.
func route(err error) error {
	if errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EAGAIN) {
		return nil
	}
	return err
}

func connect4(kind int, ip [4]byte, port int) error {
	fd, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return route(unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: ip}))
}

// reachHost tries the listener of the host on each of its addresses. Here the
// connection is waited for: on loopback a connect begins in any case.
func reachHost(a arguments) error {
	if len(a.hosts) == 0 {
		return nil // not told where the host is: nothing was proved
	}
	var tries []func() error
	for _, host := range a.hosts {
		ip, port, err := address(host)
		if err != nil {
			return nil
		}
		tries = append(tries, func() error {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer func() { _ = unix.Close(fd) }()
			err = unix.Connect(fd, &unix.SockaddrInet4{Port: port, Addr: ip})
			if !errors.Is(err, unix.EINPROGRESS) {
				return err
			}
			return settled(fd)
		})
	}
	return all(tries...)
}

// settled waits for a connect to end.
func settled(fd int) error {
	const patience = 2000 // milliseconds
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, patience)
	if err != nil {
		return err
	}
	if n == 0 {
		return nil // something took the packets
	}
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return err
	}
	if code != 0 {
		return unix.Errno(code)
	}
	return nil
}

func address(host string) (ip [4]byte, port int, err error) {
	name, tail, _ := strings.Cut(host, ":")
	parts := strings.Split(name, ".")
	if len(parts) != 4 {
		return ip, 0, errors.New("not an address")
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 8)
		if err != nil {
			return ip, 0, err
		}
		ip[i] = byte(n)
	}
	port, err = strconv.Atoi(tail)
	return ip, port, err
}

// otherInterface gets through when there is any interface but the loopback.
func otherInterface(arguments) error {
	text, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		name, _, ok := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); ok && name != "lo" {
			return nil
		}
	}
	return errors.New("only lo")
}

func connectUnix(path string) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.Connect(fd, &unix.SockaddrUnix{Name: path})
}

// talkToMyself is the control of the network: loopback works.
func talkToMyself(arguments) error {
	listener, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(listener) }()
	if err := unix.Bind(listener, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	if err := unix.Listen(listener, 1); err != nil {
		return err
	}
	name, err := unix.Getsockname(listener)
	if err != nil {
		return err
	}
	caller, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(caller) }()
	if err := unix.Connect(caller, name); err != nil {
		return err
	}
	var word [4]byte
	binary.LittleEndian.PutUint32(word[:], 1)
	_, err = unix.Write(caller, word[:])
	return err
}
