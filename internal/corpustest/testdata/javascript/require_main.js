console.log(require.main === module, module.id, module.parent, module.loaded, module.children.length)
console.log(module.filename, module.paths)
