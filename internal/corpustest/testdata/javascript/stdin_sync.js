// corpus: {"stdin": "read at once \u00fc"}
console.log(JSON.stringify(require('fs').readFileSync(0, 'utf8')))
