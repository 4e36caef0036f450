'use strict';
// Holds an interpreter back between its own start and the moment at which it
// would open the program: the program is then run by the interpreter itself. It
// is required ahead of it, also in each worker thread, where it does nothing.
{
  const place = process.env.AUREA_LAUNCHER;
  const Module = require('module');
  delete require.cache[__filename];
  for (const key of Object.keys(Module._pathCache)) {
    if (Module._pathCache[key] === __filename) delete Module._pathCache[key];
  }
  if (place !== undefined) {
    const fs = require('fs');
    const take = (n) => {
      const data = Buffer.alloc(n);
      for (let at = 0; at < n; ) {
        const more = fs.readSync(0, data, at, n - at, null);
        if (more === 0) process.reallyExit(0); // nobody wants it
        at += more;
      }
      return data;
    };
    fs.writeSync(1, 'aurea: ready\n');
    // Exactly as many bytes as there are: those behind them are the program's.
    const fields = take(Number(take(10).toString())).toString().split('\0');
    const count = Number(fields[0]);
    for (const name of Object.keys(process.env)) delete process.env[name];
    for (const entry of fields.slice(1 + count, -1)) {
      const at = entry.indexOf('=');
      process.env[entry.slice(0, at)] = entry.slice(at + 1);
    }
    process.argv.push(...fields.slice(1, 1 + count));
  }
}
