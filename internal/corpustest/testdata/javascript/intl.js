console.log((1234567.891).toLocaleString('en-US'), new Date(0).toString(), Intl.DateTimeFormat().resolvedOptions().timeZone)
