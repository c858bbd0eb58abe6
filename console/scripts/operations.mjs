/**
 * The list of operations for the API reference: what the OpenAPI documents describe, with what a person needs for it, which
 * is in the routes of crates/api/src/router.rs. `types.mjs` writes it into src/reference/operations.ts.
 */

const METHODS = ['get', 'post', 'put', 'patch', 'delete']
const ROUTE = /\b(get|post|put|patch|delete)\(\s*"([^"]+)",\s*[\w:]+,?\s*\)((?:\s*\.\w+\(\w*\))*)/g
const WHERE = { in_app: 'app', on_node: 'everywhere', for_any_person: 'person', for_anybody: 'anybody' }

/** `POST /v1/notifications` → `{ where: 'app', permission: 'publish', dangerous: false }` for the routes of the console. */
export function routesOf(source) {
  const routes = new Map()
  const matches = [...source.matchAll(ROUTE)]
  const expected = source.match(/(?<![\w.:])(get|post|put|patch|delete)\(/g)?.length ?? 0
  if (matches.length !== expected) throw new Error(`router.rs has ${expected} routes, and this script understands ${matches.length}`)
  for (const [, method, path, calls] of matches) {
    const key = `${method.toUpperCase()} ${path}`
    const needed = [...calls.matchAll(/\.(\w+)\((\w*)\)/g)]
    const dangerous = needed.some(([, name]) => name === 'dangerous')
    const rest = needed.filter(([, name]) => name !== 'dangerous')
    if (rest.length === 0 || routes.has(key)) continue
    const [, name, permission] = rest[0]
    if (rest.length > 1 || !(name in WHERE)) throw new Error(`router.rs: ${key}: unknown ${name}`)
    routes.set(key, { where: WHERE[name], ...(permission ? { permission: permission.toLowerCase() } : {}), ...(dangerous ? { dangerous } : {}) })
  }
  return routes
}

/** `documents` by name, the most important one first: it describes what several have. */
export function operationsOf(documents, router) {
  const routes = routesOf(router)
  const found = new Map()
  for (const [name, { paths }] of Object.entries(documents)) {
    for (const [path, item] of Object.entries(paths)) {
      for (const method of METHODS.filter((key) => key in item)) {
        const { operationId, tags, summary } = item[method]
        const key = `${method.toUpperCase()} ${path}`
        const known = found.get(key)
        if (known) known.documents.push(name)
        else found.set(key, { id: operationId, method: method.toUpperCase(), path, tag: tags[0], summary, documents: [name], ...(routes.has(key) ? { needed: routes.get(key) } : {}) })
      }
    }
  }
  const ids = new Set()
  for (const { id } of found.values()) {
    if (ids.has(id)) throw new Error(`two operations have the id ${id}`)
    ids.add(id)
  }
  for (const key of routes.keys()) if (!found.has(key)) throw new Error(`no document describes ${key}`)
  return [...found.values()]
}

export function sourceOf(operations) {
  return [
    '/** Generated from crates/api/openapi*.json and router.rs by `npm run types`. Do not edit. */',
    '',
    "import type { Listed } from './document'",
    '',
    'export const OPERATIONS: readonly Listed[] = [',
    ...operations.map((operation) => `  ${JSON.stringify(operation)},`),
    ']',
    '',
  ].join('\n')
}
