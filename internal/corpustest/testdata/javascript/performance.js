const { performance } = require('perf_hooks')
console.log(performance.now() > 0, performance.now() < 60000, performance.getEntries().length)
