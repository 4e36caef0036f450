console.log(this === module.exports, this === exports, typeof globalThis, Object.keys(this))
