#!/bin/sh
# A child that holds the output open after its parent has ended.
sleep 300 &
echo "STOPPED holder: the parent ends now"
exit 0
