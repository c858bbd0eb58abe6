/** Writes the types of the two OpenAPI documents into src/api: `npm run types`. */

import { readFile, writeFile } from 'node:fs/promises'
import openapiTS, { astToString } from 'openapi-typescript'

const documents = { provider: 'openapi.json', admin: 'openapi-admin.json' }

for (const [name, file] of Object.entries(documents)) {
  const document = new URL(`../../crates/api/${file}`, import.meta.url)
  // Descriptions and examples would make half of the file; the document has them.
  const schema = JSON.parse(await readFile(document, 'utf8'), (key, value) =>
    (key === 'description' || key === 'summary') && typeof value === 'string' ? undefined : value)
  const source = astToString(await openapiTS(schema, { alphabetize: true, defaultNonNullable: false }))
  const header = `/** Generated from crates/api/${file} by \`npm run types\`. Do not edit. */\n\n`
  await writeFile(new URL(`../src/api/${name}.ts`, import.meta.url), header + source)
}
