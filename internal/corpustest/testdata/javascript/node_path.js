// corpus: {"env": {"NODE_PATH": "/workspace", "NODE_ENV": "production"}, "files": {"viapath.js": "module.exports = 'found'"}}
console.log(require('viapath'), process.env.NODE_ENV)
