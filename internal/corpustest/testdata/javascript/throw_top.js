console.log('before')
function f(x) {
  return x.missing.deep
}
f({})
