function here() { return new Error('x').stack }
console.log(here())
console.log(Error.stackTraceLimit)
