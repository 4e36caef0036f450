class MyError extends Error {
  constructor(m) { super(m); this.name = 'MyError'; this.code = 'E_MINE'; this.extra = { a: 1 } }
}
throw new MyError('custom')
