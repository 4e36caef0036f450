process.on('uncaughtException', (e, origin) => { console.log('handler', e.message, origin) })
setTimeout(() => console.log('lives on'), 5)
throw new Error('for the handler')
