trap 'echo got INT' INT
kill -INT $$
echo lives on
