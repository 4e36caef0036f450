process.on('uncaughtExceptionMonitor', e => console.log('seen', e.message))
throw new Error('monitored')
