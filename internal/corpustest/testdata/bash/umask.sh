umask; ulimit -n; ulimit -c
