(echo in background) & wait $!
echo "code $?"; jobs
