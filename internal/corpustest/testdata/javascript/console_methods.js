console.error('err'); console.warn('warn'); console.info('info'); console.debug('debug')
console.table([{ a: 1, b: 'x' }]); console.group('g'); console.log('in'); console.groupEnd(); console.log('%s is %d and %o', 'a', 1, [1])
console.assert(false, 'asserted')
