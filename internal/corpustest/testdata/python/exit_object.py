class Code:
    def __str__(self):
        return "an object as code"
raise SystemExit(Code())
