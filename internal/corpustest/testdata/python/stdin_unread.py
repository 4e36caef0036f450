# corpus: {"stdin": "nobody reads this\n"}
print("done without reading")
