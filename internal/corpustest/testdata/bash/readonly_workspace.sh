echo x >>main.sh; echo $?
echo x >new.txt; echo $?
rm -f main.sh; echo $?
echo x >"$AUREA_ARTIFACTS/a.txt"; echo $?
