const { Worker, isMainThread, parentPort, workerData } = require('worker_threads')
if (isMainThread) {
  const w = new Worker(__filename, { workerData: 20 })
  w.on('message', m => console.log('from worker', m)).on('exit', c => console.log('exit', c))
} else parentPort.postMessage([workerData + 1, require.main === module, process.argv.length])
