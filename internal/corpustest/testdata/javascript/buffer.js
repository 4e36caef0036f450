const b = Buffer.from('grüße 😀')
console.log(b, b.length, b.toString('base64'), b.toString('hex'), Buffer.alloc(3))
