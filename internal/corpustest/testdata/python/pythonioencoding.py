# corpus: {"env": {"PYTHONIOENCODING": "latin-1"}}
print("grüße")
