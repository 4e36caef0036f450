# corpus: {"files": {"other.py": "import __main__\nprint('other sees', __main__.VALUE)\nimport main\nprint('twice', main is __main__, main.__name__)\n"}}
VALUE = 5
if __name__ == "__main__":
    import other
