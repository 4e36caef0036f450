const { AsyncLocalStorage } = require('async_hooks')
const s = new AsyncLocalStorage()
s.run('value', () => setTimeout(() => console.log(s.getStore()), 1))
console.log(s.getStore(), require('async_hooks').executionAsyncId())
