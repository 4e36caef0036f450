pwd; echo "$PWD" "$OLDPWD"; ls; cd /tmp && echo "$PWD $OLDPWD"
