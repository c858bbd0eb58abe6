/** Every vector, against the service's part in this process. */

import { test } from 'vitest'

import { play, vectors } from './run.js'
import { LocalWire } from './wire.js'

for (const vector of vectors) test(`${vector.file}: ${vector.name}`, () => play(vector, new LocalWire()))
