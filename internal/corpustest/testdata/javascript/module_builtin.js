const m = require('module')
console.log(m.builtinModules.length > 50, m._pathCache && Object.keys(m._pathCache), m.globalPaths)
