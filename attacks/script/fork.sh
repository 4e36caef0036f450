#!/bin/sh
# The classic, bounded by its depth: each level doubles.
echo "STOPPED fork.sh: the suite looks at the neighbour"
bomb() {
  [ "$1" -le 0 ] && { sleep 20; return; }
  bomb $(($1 - 1)) & bomb $(($1 - 1)) &
  sleep 20
}
bomb "${1:-10}" 2>/dev/null
