# corpus: {"files": {"lib.sh": "lib() { echo \"lib ${BASH_SOURCE[0]} $LINENO\"; }\necho sourced $1\n"}}
. ./lib.sh arg
lib
source ./missing.sh; echo "code $?"
