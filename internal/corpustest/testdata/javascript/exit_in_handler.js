process.on('exit', () => { console.log('first'); process.exit(5) })
process.on('exit', () => console.log('never'))
