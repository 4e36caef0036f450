import signal
for name in ("SIGINT", "SIGTERM", "SIGPIPE", "SIGCHLD", "SIGHUP", "SIGUSR1", "SIGXFSZ", "SIGQUIT", "SIGTSTP", "SIGALRM"):
    h = signal.getsignal(getattr(signal, name))
    print(name, getattr(h, "name", None) or getattr(h, "__name__", h))
print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
