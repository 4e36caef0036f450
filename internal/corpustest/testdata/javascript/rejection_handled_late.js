const p = Promise.reject(new Error('late'))
process.on('unhandledRejection', (e) => { console.log('unhandled', e.message) })
process.on('rejectionHandled', () => console.log('handled'))
setTimeout(() => p.catch(() => console.log('caught late')), 5)
