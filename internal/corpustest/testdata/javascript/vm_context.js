const vm = require('vm')
console.log(vm.runInNewContext('x + 1', { x: 2 }), vm.runInThisContext('typeof require'))
new vm.Script('throw new Error("in a script")', { filename: 'made.js' }).runInThisContext()
