/** esbuild: `import css from './style.css?raw'` is the minified text, as `?raw` is in Vite. */

import { readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { transform } from 'esbuild'

export const raw = {
  name: 'raw',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /\.css\?raw$/ }, ({ path, importer }) => ({ path: join(dirname(importer), path.replace('?raw', '')), namespace: 'raw' }))
    onLoad({ filter: /.*/, namespace: 'raw' }, async ({ path }) => {
      const { code } = await transform(readFileSync(path, 'utf8'), { loader: 'css', minify: true, target: ['chrome112', 'firefox117', 'safari16.5'] })
      return { contents: code.trim(), loader: 'text' }
    })
  },
}
