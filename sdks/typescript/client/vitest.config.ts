import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    maxConcurrency: 16,
    reporters: ['dot'],
    // A slow machine makes a test slow, but never fail.
    testTimeout: 120_000,
    hookTimeout: 120_000,
  },
})
