#!/bin/sh
# A file that grows and shrinks while it is read.
cd /workspace || exit 1
echo "STOPPED growing: the suite collects meanwhile"
while :; do
  head -c 3000000 /dev/zero >file
  : >file
done
