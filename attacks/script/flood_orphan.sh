#!/bin/sh
# A grandchild that goes on printing after its parent has ended.
(sh -c 'trap "" HUP TERM; while :; do echo ORPHAN; done' survivor &)
echo "STOPPED parent: it has ended"
exit 0
