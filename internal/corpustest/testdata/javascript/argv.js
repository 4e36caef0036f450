// corpus: {"args": ["one", "two words", "", "-x", "--flag=1", "üñí"]}
console.log(process.argv, process.argv0, process.execArgv, process.execPath)
