// corpus: {"env": {"NODE_OPTIONS": "--require ./pre.js"}, "files": {"pre.js": "globalThis.PRE = __filename"}}
console.log(globalThis.PRE, process.execArgv)
