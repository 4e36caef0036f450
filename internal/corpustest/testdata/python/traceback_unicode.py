def prüfe(größe):
    raise ValueError("zu groß: 💥 " + "é" * größe)

prüfe(3)
