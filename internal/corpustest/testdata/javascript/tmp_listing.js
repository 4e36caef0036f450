const fs = require('fs')
console.log(fs.readdirSync('/tmp'), fs.readdirSync('/workspace'))
