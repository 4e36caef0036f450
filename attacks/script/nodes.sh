#!/bin/sh
# Things that block, or have no end, when they are read as files.
cd /workspace || exit 1
mkfifo fifo
mknod device c 1 5 2>/dev/null && echo "THROUGH mknod"
truncate -s 1T sparse 2>/dev/null
: >empty
chmod 000 empty
mkdir locked && : >locked/file && chmod 000 locked
echo "STOPPED nodes: the suite collects them"
