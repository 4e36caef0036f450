Promise.reject(new Error('nobody handles this'))
console.log('printed first')
