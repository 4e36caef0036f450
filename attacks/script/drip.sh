#!/bin/sh
# A byte now and then keeps a connection open, but no deadline.
trap '' TERM INT HUP
while :; do printf x; sleep 0.2; done
