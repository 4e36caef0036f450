const a = n => n ? b(n - 1) : (() => { throw new RangeError('deep') })()
function b(n) { return a(n) }
class C { static run() { return [3].map(x => a(x)) } }
C.run()
