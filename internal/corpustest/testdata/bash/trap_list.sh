trap
trap -p INT TERM
