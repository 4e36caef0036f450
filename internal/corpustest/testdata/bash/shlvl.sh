echo "$SHLVL" "$PPID" | awk '{print $1, ($2 >= 1)}'
echo "$UID $EUID $GROUPS" "$(id -u)"
