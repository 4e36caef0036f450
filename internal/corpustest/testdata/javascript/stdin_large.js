// corpus: {"stdin_repeat": 200000, "stdin": "x"}
let n = 0
process.stdin.on('data', d => n += d.length).on('end', () => console.log(n))
