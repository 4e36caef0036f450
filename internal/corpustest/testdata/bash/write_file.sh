# corpus: {"readonly": false}
echo x >made.txt && cat made.txt; ls; chmod 600 made.txt; stat -c %a made.txt
