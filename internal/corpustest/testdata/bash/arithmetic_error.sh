echo $((1 / 0))
echo "goes on? $?"
