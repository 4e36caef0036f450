echo "$#" "${1-unset}"
