# corpus: {"stdin": "Ada\n"}
name = input("name? ")
print("hello", name)
input("again? ")
