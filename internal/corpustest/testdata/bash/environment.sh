env | sort
