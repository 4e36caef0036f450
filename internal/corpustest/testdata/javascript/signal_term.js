console.log('to be ended')
process.kill(process.pid, 'SIGTERM')
setTimeout(() => {}, 5000)
