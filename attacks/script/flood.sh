#!/bin/sh
# Output without end on both streams, one of them without a line end.
while :; do echo THE-FLOOD THE-FLOOD THE-FLOOD THE-FLOOD THE-FLOOD THE-FLOOD THE-FLOOD; done &
tr '\0' 'x' </dev/zero >&2
