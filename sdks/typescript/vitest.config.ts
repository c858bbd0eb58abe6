import { defineConfig } from 'vitest/config'

import react from './react/vitest.config.ts'

export default defineConfig({
  test: {
    reporters: ['dot'],
    // Files share workers: no test changes a global that it does not restore.
    pool: 'threads',
    isolate: false,
    maxConcurrency: 16,
    projects: ['client', 'inbox', 'server', 'web-push', ...react.test!.projects!.map((project) => ({ ...(project as object), root: './react' }))],
  },
})
