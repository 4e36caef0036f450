console.log('x'); process.exit(42)
