#!/bin/sh
# A grandchild that goes on printing after its parent has ended, and does not
# die of nobody listening.
(sh -c 'trap "" HUP TERM PIPE; while :; do echo ORPHAN; done' survivor 2>/dev/null &)
echo "STOPPED parent: it has ended"
exit 0
