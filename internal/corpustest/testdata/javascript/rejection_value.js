Promise.reject({ some: 'value' })
