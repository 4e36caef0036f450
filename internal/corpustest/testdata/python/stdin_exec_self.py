# corpus: {"stdin": "print('code from stdin', __name__)\n"}
exec(open(0).read())
