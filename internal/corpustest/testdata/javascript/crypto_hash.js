console.log(require('crypto').createHash('sha256').update('x').digest('hex'))
