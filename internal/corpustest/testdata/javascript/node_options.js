// corpus: {"env": {"NODE_OPTIONS": "--stack-trace-limit=1 --no-warnings"}}
function a() { throw new Error('short stack') }
function b() { a() }
b()
