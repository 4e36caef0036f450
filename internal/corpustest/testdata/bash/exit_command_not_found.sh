no_such_program_here
echo "code $?"
