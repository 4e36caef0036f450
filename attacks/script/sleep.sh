#!/bin/sh
# No CPU at all, and longer than allowed.
trap '' TERM INT HUP
while :; do sleep 1000; done
