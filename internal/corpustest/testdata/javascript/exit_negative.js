process.exit(-1)
