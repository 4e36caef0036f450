echo before
kill -KILL $$
