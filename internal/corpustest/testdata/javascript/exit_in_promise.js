Promise.resolve().then(() => { console.log('micro'); process.exit(2) })
setTimeout(() => console.log('never'), 0)
