// corpus: {"files": {"bad.mjs": "export const x = 1\nthrow new TypeError('at top level')\n"}}
import('./bad.mjs').catch(e => { console.log('caught', e.name, e.message); throw e })
