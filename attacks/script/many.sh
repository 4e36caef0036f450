#!/bin/sh
# A folder that makes a quadratic walk take for ever.
mkdir -p /workspace/many && cd /workspace/many || exit 1
i=0
while [ $i -lt 20000 ]; do : >"$i"; i=$((i + 1)); done
echo "STOPPED many: the suite collects them"
