console.log('before')
process.kill(process.pid, 'SIGABRT')
setTimeout(() => {}, 5000)
