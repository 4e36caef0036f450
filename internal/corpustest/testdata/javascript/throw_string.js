throw 'just a text'
