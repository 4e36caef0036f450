echo one
echo two
) oops
echo three
