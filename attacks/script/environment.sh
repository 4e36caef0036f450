#!/bin/sh
# The suite sets variables that make helpers load code; the code says so.
for name in LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT PYTHONSTARTUP NODE_OPTIONS GIT_SSH_COMMAND BASH_ENV ENV; do
  eval "value=\$$name"
  echo "STOPPED $name is ours alone: $value"
done
env | grep -iE 'AUREA_(KEY|DATA)|SECRET|TOKEN|PASSWORD|AWS_|DATABASE_URL' && echo "THROUGH a secret of the host"
exit 0
