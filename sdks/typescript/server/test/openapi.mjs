/** Compares requests and answers with the OpenAPI document. */

import { readFileSync } from 'node:fs'
import { Ajv2020 } from 'ajv/dist/2020.js'

const document = JSON.parse(readFileSync(new URL('../../../../crates/api/openapi.json', import.meta.url), 'utf8'))
const ajv = new Ajv2020({ strict: false, validateFormats: false, allErrors: true })
ajv.addSchema(document, 'openapi')

/** The operations that an API key may call, by method and path. */
export const operations = new Map()
for (const [path, methods] of Object.entries(document.paths)) {
  for (const [method, operation] of Object.entries(methods)) {
    const isForKeys = operation.security?.some((scheme) => 'apiKey' in scheme)
    if (isForKeys && operation.operationId !== 'relay') operations.set(`${method.toUpperCase()} ${path}`, operation)
  }
}

export function operationOf(method, pathname) {
  const found = [...operations].filter(([key]) => {
    const [of, path] = key.split(' ')
    return of === method && new RegExp(`^${path.replace(/[.]/g, '\\.').replace(/\{\w+\}/g, '[^/]+')}$`).test(pathname)
  })
  // A path without parameters comes before one with.
  const best = found.sort(([a], [b]) => a.split('{').length - b.split('{').length)[0]
  if (!best) throw new Error(`no such operation: ${method} ${pathname}`)
  return best
}

const inDocument = (schema) =>
  JSON.parse(JSON.stringify(schema), (key, value) => (key === '$ref' && typeof value === 'string' && value.startsWith('#') ? `openapi${value}` : value))

const compiled = new Map()

function check(what, schema, value) {
  const validate = compiled.get(schema) ?? ajv.compile(inDocument(schema))
  compiled.set(schema, validate)
  if (!validate(value)) throw new Error(`${what}: ${ajv.errorsText(validate.errors)} in ${JSON.stringify(value).slice(0, 500)}`)
}

const LINES = {
  publishBatch: { line: 'Notification', result: { $ref: '#/components/schemas/ReceiptLine' } },
  importDevices: { line: 'DeviceRegistration', result: { $ref: '#/components/schemas/DeviceLine' } },
  uploadRecipients: { line: 'Recipient', result: { type: 'object', anyOf: [{ required: ['user'] }, { required: ['error'] }] } },
}

/** Throws unless the document describes the request. */
export function checkRequest(method, url, headers, text) {
  const [key, operation] = operationOf(method, url.pathname)
  const parameters = operation.parameters ?? []
  for (const name of url.searchParams.keys()) if (!parameters.some((one) => one.in === 'query' && one.name === name)) throw new Error(`${key}: unknown query parameter ${name}`)
  const isIdempotent = parameters.some(({ name }) => name === 'Idempotency-Key')
  if (headers.has('idempotency-key') !== isIdempotent) throw new Error(`${key}: Idempotency-Key ${isIdempotent ? 'is missing' : 'is not documented'}`)
  const content = operation.requestBody?.content
  if ((text !== undefined) !== (content !== undefined)) throw new Error(`${key}: ${text === undefined ? 'no' : 'a'} body`)
  if (content && text !== undefined) {
    const type = headers.get('content-type') ?? ''
    if (!content[type]) throw new Error(`${key}: content type ${type}`)
    // A draft may lack fields that the schema requires.
    if (url.searchParams.get('draft') === 'true') JSON.parse(text)
    else if (type === 'application/json') check(`body of ${key}`, content[type].schema, JSON.parse(text))
    else for (const line of text.trimEnd().split('\n')) check(`line of ${key}`, { $ref: `#/components/schemas/${LINES[operation.operationId].line}` }, JSON.parse(line))
  }
  return operation
}

/** Throws unless the document describes the answer. */
export function checkAnswer(operation, status, type, text) {
  let answer = operation.responses[status]
  if (answer?.$ref) answer = document.components.responses[answer.$ref.split('/').at(-1)]
  if (!answer) throw new Error(`${operation.operationId}: status ${status} is not documented: ${text}`)
  const content = answer.content?.[type]
  if (!content) {
    if (text) throw new Error(`${operation.operationId}: content type ${type} of ${status} is not documented`)
  } else if (type === 'application/x-ndjson') {
    for (const line of text.trimEnd().split('\n')) check(`line of ${operation.operationId}`, LINES[operation.operationId].result, JSON.parse(line))
  } else {
    const value = JSON.parse(text)
    // docs/push.md describes `state`, which the schema lacks.
    if (operation.operationId === 'pushCredentials') for (const credential of value.credentials) delete credential.state
    check(`answer of ${operation.operationId}`, content.schema, value)
  }
}
