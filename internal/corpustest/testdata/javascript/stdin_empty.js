process.stdin.on('data', () => console.log('data')).on('end', () => console.log('end', process.stdin.isTTY, process.stdout.isTTY))
