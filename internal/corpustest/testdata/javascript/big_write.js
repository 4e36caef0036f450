process.stdout.write('y'.repeat(1000000) + '\n', () => console.error('written'))
