console.log(process._getActiveHandles().length, process.getActiveResourcesInfo ? process.getActiveResourcesInfo() : [])
