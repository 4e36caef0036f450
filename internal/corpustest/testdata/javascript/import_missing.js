import('./nowhere.mjs')
