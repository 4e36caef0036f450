a=(x "y z" w); declare -A m=([k]=v [two]=2)
echo "${#a[@]}" "${a[1]}" "${m[k]}"; for k in $(printf '%s\n' "${!m[@]}" | sort); do echo "$k=${m[$k]}"; done
