compgen -v | grep -v -e RANDOM -e SRANDOM -e BASHPID -e EPOCH -e SECONDS | sort
