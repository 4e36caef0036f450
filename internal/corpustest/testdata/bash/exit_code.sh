echo out; exit 42
