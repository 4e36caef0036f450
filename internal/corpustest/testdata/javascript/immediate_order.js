setImmediate(() => { console.log('immediate'); setImmediate(() => console.log('nested')); process.nextTick(() => console.log('tick in it')) })
process.nextTick(() => console.log('tick'))
