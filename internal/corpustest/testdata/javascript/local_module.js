// corpus: {"files": {"tool.js": "exports.who = __filename; exports.parent = module.parent && module.parent.filename; exports.main = require.main.filename", "data.json": "{\"a\": [1, 2]}"}}
console.log(require('./tool'), require('./data.json'))
