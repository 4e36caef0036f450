exit 263
