try:
    input()
except EOFError as e:
    print("EOF:", e)
input()
