import('node:path').then(p => console.log(p.join('a', '..', 'b'), typeof p.default))
