/**
 * Writes the types of the OpenAPI documents into src/api, and the list of operations into src/reference: `npm run types`.
 * With `--check`, fails if they are not current.
 */

import { readFile, writeFile } from 'node:fs/promises'
import openapiTS, { astToString } from 'openapi-typescript'

import { operationsOf, sourceOf } from './operations.mjs'

const documents = { provider: 'openapi.json', admin: 'openapi-admin.json', session: 'openapi-console.json' }
const check = process.argv.includes('--check')
let stale = false

async function put(name, text) {
  const target = new URL(`../src/${name}`, import.meta.url)
  if (!check) await writeFile(target, text)
  else if (text !== await readFile(target, 'utf8').catch(() => undefined)) {
    console.error(`src/${name} is not current: npm run types`)
    stale = true
  }
}

const whole = {}
for (const [name, file] of Object.entries(documents)) {
  const document = await readFile(new URL(`../../crates/api/${file}`, import.meta.url), 'utf8')
  whole[name] = JSON.parse(document)
  // Descriptions and examples would make half of the file; the document has them.
  const schema = JSON.parse(document, (key, value) =>
    (key === 'description' || key === 'summary') && typeof value === 'string' ? undefined : value)
  const source = astToString(await openapiTS(schema, { alphabetize: true, defaultNonNullable: false }))
  await put(`api/${name}.ts`, `/** Generated from crates/api/${file} by \`npm run types\`. Do not edit. */\n\n${source}`)
}
const router = await readFile(new URL('../../crates/api/src/router.rs', import.meta.url), 'utf8')
await put('reference/operations.ts', sourceOf(operationsOf(whole, router)))
if (stale) process.exit(1)
