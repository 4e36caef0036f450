// corpus: {"stdin": "nobody reads this"}
console.log('done')
