// corpus: {"stdin": "through the child"}
console.log('before')
require('child_process').spawnSync('cat', { stdio: 'inherit' })
console.log('\nafter')
