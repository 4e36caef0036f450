package docker

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/aurea-dev/aurea/internal/fault"
)

// profile is a seccomp profile as the engine reads it.
type profile struct {
	DefaultAction   string        `json:"defaultAction"`
	DefaultErrnoRet uint          `json:"defaultErrnoRet"`
	Architectures   []string      `json:"architectures"`
	Syscalls        []syscallRule `json:"syscalls"`
}

// syscallRule says what becomes of calls that meet all conditions.
type syscallRule struct {
	Names    []string    `json:"names"`
	Action   string      `json:"action"`
	ErrnoRet *uint       `json:"errnoRet,omitempty"`
	Args     []condition `json:"args,omitempty"`
}

// condition compares one argument. With maskedEqual Value is the mask.
type condition struct {
	Index    uint   `json:"index"`
	Value    uint64 `json:"value"`
	ValueTwo uint64 `json:"valueTwo"`
	Op       string `json:"op"`
}

const (
	allow       = "SCMP_ACT_ALLOW"
	refuse      = "SCMP_ACT_ERRNO"
	equal       = "SCMP_CMP_EQ"
	maskedEqual = "SCMP_CMP_MASKED_EQ"
)

// seccompProfile is our own allow-list for the engine's architecture. What is
// not on it fails with EPERM, or ENOSYS where programs then know another way;
// calls of another architecture kill who makes them. It is one list for the
// guest and for commands, so it also holds what the guest needs capabilities
// for, which commands do not have.
func seccompProfile(machine string) (string, error) {
	arch, own := "", []string{}
	switch machine {
	case "x86_64", "amd64":
		arch, own = "SCMP_ARCH_X86_64", words(allowedOnAMD64)
	case "aarch64", "arm64":
		arch = "SCMP_ARCH_AARCH64"
	default:
		return "", fault.New(fault.Unavailable, "the docker driver has no seccomp profile for %q; it has one for x86_64 and aarch64", machine)
	}
	rules := []syscallRule{
		{Names: append(words(allowed), own...), Action: allow},
		{Names: words(unknown), Action: refuse, ErrnoRet: number(uint(unix.ENOSYS))},
		// No new namespace of any kind; clone3, whose flags cannot be read
		// from here, does not exist, and programs fall back to clone.
		{Names: []string{"clone"}, Action: allow, Args: []condition{{Index: 0, Value: namespaceFlags, Op: maskedEqual}}},
	}
	for _, persona := range []uint64{0, 0xffffffff} { // the usual one, and the question which
		rules = append(rules, syscallRule{Names: []string{"personality"}, Action: allow, Args: []condition{{Index: 0, Value: persona, Op: equal}}})
	}
	rules = append(rules, socketRules()...)
	rules = append(rules, nodeRules()...)
	rules = append(rules, ioctlRules()...)
	body, err := json.Marshal(profile{
		DefaultAction: refuse, DefaultErrnoRet: uint(unix.EPERM),
		Architectures: []string{arch}, Syscalls: rules,
	})
	if err != nil {
		return "", fmt.Errorf("encode the seccomp profile: %w", err)
	}
	return string(body), nil
}

func words(list string) []string { return strings.Fields(list) }

func number(n uint) *uint { return &n }

// namespaceFlags are all CLONE_NEW flags that clone knows.
const namespaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// socketRules allow sockets of the machine itself and of the internet, and say
// of all others that there are none: netlink, packet, vsock, alg, bluetooth…
// The kernel reads the domain as an int, so only its low half is compared.
func socketRules() []syscallRule {
	var rules []syscallRule
	domains := []uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6}
	for _, domain := range domains {
		rules = append(rules, syscallRule{
			Names: []string{"socket", "socketpair"}, Action: allow,
			Args: []condition{{Index: 0, Value: low32, ValueTwo: domain, Op: maskedEqual}},
		})
	}
	return rules
}

const low32 = 0xffffffff

// nodeRules allow FIFOs, sockets and plain files to be made, and no devices.
func nodeRules() []syscallRule {
	var rules []syscallRule
	for _, kind := range []uint64{0, unix.S_IFREG, unix.S_IFIFO, unix.S_IFSOCK} {
		rules = append(rules,
			syscallRule{Names: []string{"mknod"}, Action: allow, Args: []condition{{Index: 1, Value: unix.S_IFMT, ValueTwo: kind, Op: maskedEqual}}},
			syscallRule{Names: []string{"mknodat"}, Action: allow, Args: []condition{{Index: 2, Value: unix.S_IFMT, ValueTwo: kind, Op: maskedEqual}}},
		)
	}
	return rules
}

// ioctlRules allow every request but the two that put words into a terminal's
// mouth. The kernel looks at the low half of the request only, and so must the
// filter; as a filter can say "these bits are so" but not "these are other
// bits", it lists the ways in which a request can differ from both.
func ioctlRules() []syscallRule {
	const tiocsti, tioclinux = uint64(unix.TIOCSTI), uint64(tiocLinux)
	differ := tiocsti ^ tioclinux
	rule := func(mask, value uint64) syscallRule {
		return syscallRule{Names: []string{"ioctl"}, Action: allow, Args: []condition{{Index: 1, Value: mask, ValueTwo: value, Op: maskedEqual}}}
	}
	var rules []syscallRule
	for bit := uint64(1); bit <= 1<<31; bit <<= 1 {
		if differ&bit == 0 { // both have it, or both have it not
			rules = append(rules, rule(bit, ^tiocsti&bit))
		}
	}
	for value := differ; ; value = (value - 1) & differ { // every subset of the bits in which they differ
		if value != tiocsti&differ && value != tioclinux&differ {
			rules = append(rules, rule(differ, value))
		}
		if value == 0 {
			break
		}
	}
	slices.Reverse(rules)
	return rules
}

// tiocLinux is missing from package unix.
const tiocLinux = 0x541c

// allowed are the calls that programs live on, on every architecture.
const allowed = `
read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 sendfile splice tee
open openat openat2 creat close close_range dup dup2 dup3 fcntl flock lseek pipe pipe2
stat fstat lstat newfstatat fstatat64 statx statfs fstatfs access faccessat faccessat2
chdir fchdir getcwd mkdir mkdirat rmdir rename renameat renameat2 link linkat symlink symlinkat
unlink unlinkat readlink readlinkat chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat
umask utime utimes futimesat utimensat truncate ftruncate fallocate fadvise64 readahead copy_file_range
sync fsync fdatasync syncfs sync_file_range getdents getdents64 memfd_create cachestat
getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr setxattr lsetxattr fsetxattr
removexattr lremovexattr fremovexattr inotify_init inotify_init1 inotify_add_watch inotify_rm_watch
landlock_create_ruleset landlock_add_rule landlock_restrict_self

mmap munmap mremap mprotect madvise mincore msync brk mlock mlock2 munlock mlockall munlockall
remap_file_pages membarrier pkey_alloc pkey_free pkey_mprotect mseal map_shadow_stack
shmget shmat shmctl shmdt semget semop semtimedop semctl msgget msgsnd msgrcv msgctl
mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr

execve execveat exit exit_group fork vfork wait4 waitid getpid getppid gettid
setpgid getpgid getpgrp setsid getsid set_tid_address set_robust_list get_robust_list rseq
futex futex_waitv futex_wake futex_wait futex_requeue restart_syscall pidfd_open pidfd_send_signal
prctl seccomp capget capset prlimit64 getrlimit setrlimit getrusage times
getpriority setpriority sched_yield sched_getaffinity sched_setaffinity sched_getparam sched_setparam
sched_getscheduler sched_setscheduler sched_getattr sched_setattr sched_get_priority_max
sched_get_priority_min sched_rr_get_interval ioprio_get ioprio_set getcpu
kill tkill tgkill rt_sigaction rt_sigprocmask rt_sigpending rt_sigqueueinfo rt_tgsigqueueinfo
rt_sigreturn rt_sigsuspend rt_sigtimedwait sigaltstack signalfd signalfd4 pause alarm
getuid geteuid getgid getegid getresuid getresgid getgroups setuid setgid setreuid setregid
setresuid setresgid setgroups setfsuid setfsgid

nanosleep clock_nanosleep clock_gettime clock_getres gettimeofday time getitimer setitimer
timer_create timer_settime timer_gettime timer_getoverrun timer_delete
timerfd_create timerfd_settime timerfd_gettime
poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2
eventfd eventfd2 io_setup io_destroy io_submit io_cancel io_getevents io_pgetevents
bind listen accept accept4 connect shutdown getsockname getpeername getsockopt setsockopt
sendto sendmsg sendmmsg recvfrom recvmsg recvmmsg
uname sysinfo getrandom
`

const allowedOnAMD64 = `arch_prctl`

// unknown are calls that programs try first and do without: they get the
// answer of a kernel that has never heard of them.
const unknown = `
clone3 io_uring_setup io_uring_enter io_uring_register userfaultfd memfd_secret
process_madvise process_mrelease pidfd_getfd set_mempolicy_home_node
fsopen fsconfig fsmount fspick move_mount open_tree mount_setattr statmount listmount
quotactl_fd lsm_get_self_attr lsm_set_self_attr lsm_list_modules
`
