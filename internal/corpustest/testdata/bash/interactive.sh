case $- in *i*) echo interactive ;; *) echo not ;; esac; shopt -q login_shell; echo $?; echo "${PS1-no prompt}"; history | wc -l; type -t ls
