const r = require('child_process').spawnSync(process.execPath, ['-e', 'console.log(process.argv.length, process.execArgv)', 'x'])
console.log(r.stdout.toString(), r.status)
