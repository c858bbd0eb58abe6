/** The vectors have the form of their schema, and together they name every rule that a single client can show. */

import { Ajv2020 } from 'ajv/dist/2020.js'
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'vitest'

import { files, vectors } from './run.js'

const folder = new URL('../../../../vectors/', import.meta.url)
const json = (file: string) => JSON.parse(readFileSync(new URL(file, folder), 'utf8'))

test('every file has the form of schema.json', () => {
  const validate = new Ajv2020({ allErrors: true, strict: true, strictTypes: false, strictRequired: false }).compile(json('schema.json'))
  for (const file of files) assert.ok(validate(json(file)), `${file}: ${JSON.stringify(validate.errors?.slice(0, 3), null, 2)}`)
})

test('names are unique', () => {
  assert.deepEqual(
    vectors.map(({ name }) => name).filter((name, index, all) => all.indexOf(name) !== index),
    [],
  )
})

test('every rule of the contract has a vector, and every vector names rules of the contract', () => {
  const contract = readFileSync(new URL('../CONTRACT.md', folder), 'utf8')
  const rules = [...contract.matchAll(/^\| ([A-Z]\d+) \|/gm)].map((match) => match[1]!)
  // Tests of their own: several tabs need browsers (test/browser), the storage needs a second process (test/outbox.test.ts), and
  // loops are different in each language (test/noroshi.test.ts).
  const others = rules.filter((rule) => /^N\d+$|^O6$|^A8$/.test(rule))
  const named = new Set(vectors.flatMap(({ rules }) => rules))
  assert.deepEqual(rules.filter((rule) => !named.has(rule) && !others.includes(rule)), [])
  assert.deepEqual([...named].filter((rule) => !rules.includes(rule)), [])
  assert.ok(vectors.length >= 60)
})
