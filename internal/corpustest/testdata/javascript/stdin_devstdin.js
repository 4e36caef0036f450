// corpus: {"stdin": "by path"}
console.log(require('fs').readFileSync('/dev/stdin', 'utf8'))
