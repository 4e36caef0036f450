console.log(process.eventNames().map(String).sort(), process.listenerCount('exit'), process.listenerCount('SIGINT'))
