console.log(typeof fetch, typeof structuredClone, new URL('a?b=c', 'http://x.test/d/').href, new TextDecoder().decode(new Uint8Array([226, 130, 172])))
console.log(btoa('x'), typeof crypto, [...new URLSearchParams('a=1&b=2')])
