// corpus: {"stdin": "x1\nx2\n"}
;(async () => { for await (const c of process.stdin) console.log(c.length, c) })()
