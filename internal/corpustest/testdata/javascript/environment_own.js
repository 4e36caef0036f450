// corpus: {"env": {"GREETING": "hello", "EMPTY": "", "UNI": "ü"}}
console.log(process.env.GREETING, JSON.stringify(process.env.EMPTY), process.env.UNI, process.env.NOPE)
