#!/bin/sh
# A folder that is a link every other moment, while it is collected.
cd /workspace || exit 1
mkdir -p real && echo x >real/file
echo "STOPPED swap: the suite collects meanwhile"
while :; do
  mkdir victim 2>/dev/null; echo y >victim/file
  rm -rf victim; ln -s "$(dirname "$1")" victim; rm -f victim
done
