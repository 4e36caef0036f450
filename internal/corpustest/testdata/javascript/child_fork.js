if (process.argv[2] === 'child') { process.on('message', m => { process.send(m * 2); process.disconnect() }) } else {
  const c = require('child_process').fork(__filename, ['child'])
  c.on('message', m => console.log('answer', m)).on('exit', (code, sig) => console.log('exit', code, sig))
  c.send(21)
}
