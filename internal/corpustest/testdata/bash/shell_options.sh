echo "$-"; shopt | grep -c on; set -o | grep -w on
echo "$BASH_VERSION" | cut -d. -f1; echo "$SHELLOPTS" "$BASHOPTS" | wc -w
