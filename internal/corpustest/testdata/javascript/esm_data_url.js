import('data:text/javascript,export default import.meta.url.slice(0, 5)').then(m => console.log(m.default))
