f() { local x=$1; echo "$FUNCNAME ${BASH_LINENO[0]} $x"; return 7; }
f a; echo $?
g() { f "$@"; }; g b
caller; echo "${FUNCNAME[*]-none}"
