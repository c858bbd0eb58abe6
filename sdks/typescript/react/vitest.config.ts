import { defineConfig } from 'vitest/config'
import { fileURLToPath } from 'node:url'

const oldest = (name: string) => fileURLToPath(new URL(`../react-18/node_modules/${name}`, import.meta.url))

const test = {
  include: ['test/**/*.test.{ts,tsx}'],
  css: true,
  // A slow machine makes a test slow, but never fail.
  testTimeout: 120_000,
  hookTimeout: 120_000,
}

export default defineConfig({
  test: {
    reporters: ['dot'],
    projects: [
      { test: { ...test, name: 'react-19' } },
      {
        test: { ...test, name: 'react-18', exclude: ['test/size.test.ts', 'test/types.test.tsx'] },
        resolve: { alias: [{ find: /^(react|react-dom)(\/.*)?$/, replacement: `${oldest('')}$1$2` }] },
      },
    ],
  },
})
