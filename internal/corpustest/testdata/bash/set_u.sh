set -u
echo before
echo "$not_set"
echo never
