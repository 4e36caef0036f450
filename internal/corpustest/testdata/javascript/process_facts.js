console.log(process.version.split('.')[0], process.platform, process.arch, process.title, process.umask().toString(8), process.getuid(), process.getgid(), process.getgroups())
console.log(process.pid > 1, process.ppid >= 1, process.uptime() < 60, process.config.variables.napi_build_version !== undefined)
