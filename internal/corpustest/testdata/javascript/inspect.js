class P { constructor() { this.x = 1; this.self = this } }
console.log(new P(), new Map([[1, { a: [] }]]), new Set('ab'), Symbol('s'), -0, 10n, [, 1], () => {}, null, undefined, new Date(0))
