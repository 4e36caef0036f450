new (require('events'))().emit('error', new Error('no listener'))
