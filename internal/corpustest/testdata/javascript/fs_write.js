// corpus: {"readonly": false}
const fs = require('fs')
fs.writeFileSync('made.txt', 'x'); console.log(fs.statSync('made.txt').size, fs.readdirSync('.').sort())
