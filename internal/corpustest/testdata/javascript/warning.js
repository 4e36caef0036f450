process.emitWarning('take care', { code: 'W1', detail: 'more' })
new Buffer(1)
