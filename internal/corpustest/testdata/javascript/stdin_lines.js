// corpus: {"stdin": "a\nb\n\nc"}
require('readline').createInterface({ input: process.stdin }).on('line', l => console.log(JSON.stringify(l))).on('close', () => console.log('closed'))
