console.log(__filename, __dirname, process.cwd())
