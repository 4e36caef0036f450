#!/usr/bin/env node
console.log(new Error('x').stack.split('\n')[1].trim())
