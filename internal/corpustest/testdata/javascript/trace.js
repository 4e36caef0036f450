console.trace('here')
