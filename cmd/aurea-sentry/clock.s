// Lets clock.go declare a function whose body is in gVisor.
