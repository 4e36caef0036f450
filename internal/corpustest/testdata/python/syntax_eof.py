data = {"a": [1, 2,
