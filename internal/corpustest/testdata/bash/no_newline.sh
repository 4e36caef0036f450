printf 'no newline'
