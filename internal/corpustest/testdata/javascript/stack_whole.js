Error.stackTraceLimit = Infinity
console.log(new Error('all of it').stack)
setTimeout(() => console.log(new Error('in a timer').stack), 1)
