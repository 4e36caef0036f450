for (const k of Object.keys(process.env).sort()) console.log(k, '=', process.env[k])
