# corpus: {"stdin": "all of it\nand more"}
cat
