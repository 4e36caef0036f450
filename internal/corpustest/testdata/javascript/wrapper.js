console.log(arguments.length, typeof require, typeof module, typeof exports)
console.log(Object.keys(require).sort(), require.resolve('fs'))
