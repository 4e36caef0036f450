import sys
sys.displayhook("shown")
"an expression shows nothing"
sys.displayhook(None)
print(hasattr(sys, "ps1"))
