// corpus: {"files": {"in.txt": "input text"}}
const fs = require('fs')
console.log(fs.readFileSync('in.txt', 'utf8'), fs.readdirSync('.').sort())
try { fs.writeFileSync('main.js', '') } catch (e) { console.log(e.code) }
