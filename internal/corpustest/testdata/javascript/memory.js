const a = new Uint8Array(32 << 20).fill(1)
console.log(a.length, a.reduce((x, y) => x + y, 0))
