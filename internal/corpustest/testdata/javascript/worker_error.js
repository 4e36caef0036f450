const { Worker } = require('worker_threads')
new Worker('throw new TypeError("inside")', { eval: true }).on('error', e => console.log(e.name, e.message)).on('exit', c => console.log(c))
