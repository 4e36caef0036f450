try { JSON.parse('{bad') } catch (e) { throw new Error('outer', { cause: e }) }
