/** Chromium for tests: one for all of them, if `scripts/chromium.mjs` runs them, or one for a file. */

import { existsSync } from 'node:fs'
import { chromium } from 'playwright-core'

const executablePath = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(existsSync)

export const skip = executablePath || process.env.CI ? false : 'no Chromium (Debian package chromium)'

export const options = {
  executablePath,
  args: ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-component-update'],
}

export const launch = () => {
  const shared = process.env.NOROSHI_CHROMIUM
  return shared ? chromium.connect(shared) : chromium.launch(options)
}
