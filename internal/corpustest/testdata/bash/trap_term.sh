trap 'echo got TERM; exit 9' TERM
kill -TERM $$
echo never
