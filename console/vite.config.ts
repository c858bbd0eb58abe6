import { fileURLToPath } from 'node:url'

import { defineConfig } from 'vitest/config'

/** What every page needs comes in two files, one that rarely changes and one that changes with the console. */
function chunk(id: string): string | undefined {
  if (/node_modules\/(preact|@preact|openapi-fetch)\//.test(id)) return 'vendor'
  if (/src\/(ui\/(?!plot|qr|chart|timeline|code|progress|meter)|app\/|api\/|i18n\/(?!ja))/.test(id)) return 'base'
  return undefined
}

export default defineConfig({
  base: '/console/',
  // The preview of the inbox is the bell of the library, from its sources.
  resolve: { alias: { '@noroshi/inbox': fileURLToPath(new URL('../sdks/typescript/inbox/src', import.meta.url)) } },
  esbuild: { jsx: 'automatic', jsxImportSource: 'preact', legalComments: 'none' },
  build: {
    target: 'es2022',
    // The strict Content-Security-Policy forbids inline scripts and `data:` fonts: every asset is a file.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    // For test/budget.mjs; it does not go into the binary.
    manifest: true,
    rollupOptions: { output: { manualChunks: chunk, entryFileNames: 'assets/[name]-[hash].js', chunkFileNames: 'assets/[name]-[hash].js', assetFileNames: 'assets/[name]-[hash][extname]' } },
  },
  server: {
    // `npm run dev` forwards the API to a node's admin listener.
    proxy: { '/console/api': process.env['NOROSHI_ADMIN'] ?? 'http://127.0.0.1:9090' },
  },
  test: { include: ['test/unit/**/*.test.ts'], environment: 'node' },
})
