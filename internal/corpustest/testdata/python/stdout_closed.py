import sys, os
os.close(1)
print("goes nowhere")
