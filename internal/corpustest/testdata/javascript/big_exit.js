process.stdout.write('z'.repeat(30000))
process.exit(3)
