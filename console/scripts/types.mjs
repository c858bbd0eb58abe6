/** Writes the types of the OpenAPI documents into src/api: `npm run types`. With `--check`, fails if they are not current. */

import { readFile, writeFile } from 'node:fs/promises'
import openapiTS, { astToString } from 'openapi-typescript'

const documents = { provider: 'openapi.json', admin: 'openapi-admin.json', session: 'openapi-console.json' }
const check = process.argv.includes('--check')
let stale = false

for (const [name, file] of Object.entries(documents)) {
  const document = new URL(`../../crates/api/${file}`, import.meta.url)
  // Descriptions and examples would make half of the file; the document has them.
  const schema = JSON.parse(await readFile(document, 'utf8'), (key, value) =>
    (key === 'description' || key === 'summary') && typeof value === 'string' ? undefined : value)
  const source = astToString(await openapiTS(schema, { alphabetize: true, defaultNonNullable: false }))
  const text = `/** Generated from crates/api/${file} by \`npm run types\`. Do not edit. */\n\n${source}`
  const target = new URL(`../src/api/${name}.ts`, import.meta.url)
  if (!check) await writeFile(target, text)
  else if (text !== await readFile(target, 'utf8')) {
    console.error(`src/api/${name}.ts is not current: npm run types`)
    stale = true
  }
}
if (stale) process.exit(1)
