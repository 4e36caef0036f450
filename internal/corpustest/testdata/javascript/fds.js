const fs = require('fs')
console.log([0, 1, 2].map(f => fs.fstatSync(f).isFIFO()))
