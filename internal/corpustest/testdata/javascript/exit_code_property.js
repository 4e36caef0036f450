process.exitCode = 9
console.log('runs to its end')
