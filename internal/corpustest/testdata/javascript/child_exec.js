const { execFileSync, spawnSync } = require('child_process')
console.log(execFileSync('echo', ['hi']).toString(), spawnSync('sh', ['-c', 'echo e >&2; exit 3']).status)
console.log(spawnSync('no-such-program').error.code, spawnSync('sh', ['-c', 'kill -9 $$']).signal)
