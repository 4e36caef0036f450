import atexit
atexit.register(print, "still runs")
raise KeyError("uncaught")
