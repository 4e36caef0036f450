// corpus: {"files": {"m.mjs": "export const url = import.meta.url; export default 7; export const top = await Promise.resolve('awaited')"}}
import('./m.mjs').then(m => console.log(m.default, m.url, m.top))
