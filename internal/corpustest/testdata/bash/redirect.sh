exec 3>&1; echo via3 >&3; exec 3>&-
echo lost >/dev/null; { echo o; echo e >&2; } 2>&1 | sort
echo x >&3
