/** Compares requests and answers with the OpenAPI document. */

import { readFileSync } from 'node:fs'
import { Ajv2020 } from 'ajv/dist/2020.js'

interface Operation {
  operationId: string
  security?: Record<string, unknown>[]
  parameters?: { name: string; in: string; required?: boolean; schema: object }[]
  requestBody?: { content: Record<string, { schema: object; example?: unknown; examples?: Record<string, { value: unknown }> }> }
  responses: Record<string, { $ref?: string; content?: Record<string, { schema: object; example?: unknown }> }>
}

const document = JSON.parse(readFileSync(new URL('../../../../crates/api/openapi.json', import.meta.url), 'utf8')) as {
  paths: Record<string, Record<string, Operation>>
  components: { responses: Record<string, Operation['responses'][string]> }
}
const ajv = new Ajv2020({ strict: false, validateFormats: false, allErrors: true })
ajv.addSchema(document, 'openapi')

/** The operations that an API key may call, by method and path. */
export const operations = new Map<string, Operation>()
for (const [path, methods] of Object.entries(document.paths)) {
  for (const [method, operation] of Object.entries(methods)) {
    const isForKeys = operation.security?.some((scheme) => 'apiKey' in scheme)
    if (isForKeys && operation.operationId !== 'relay') operations.set(`${method.toUpperCase()} ${path}`, operation)
  }
}

export function operationOf(method: string, pathname: string): [string, Operation] {
  const found = [...operations].filter(([key]) => {
    const [of, path] = key.split(' ') as [string, string]
    return of === method && new RegExp(`^${path.replace(/[.]/g, '\\.').replace(/\{\w+\}/g, '[^/]+')}$`).test(pathname)
  })
  // A path without parameters comes before one with.
  const best = found.sort(([a], [b]) => a.split('{').length - b.split('{').length)[0]
  if (!best) throw new Error(`no such operation: ${method} ${pathname}`)
  return best
}

const inDocument = (schema: unknown): unknown =>
  JSON.parse(JSON.stringify(schema), (key, value) => (key === '$ref' && typeof value === 'string' && value.startsWith('#') ? `openapi${value}` : value))

function check(what: string, schema: object, value: unknown): void {
  const validate = ajv.compile(inDocument(schema) as object)
  if (!validate(value)) throw new Error(`${what}: ${ajv.errorsText(validate.errors)} in ${JSON.stringify(value).slice(0, 500)}`)
}

const LINES: Record<string, { line: string; result: object }> = {
  publishBatch: { line: 'Notification', result: { $ref: '#/components/schemas/ReceiptLine' } },
  importDevices: { line: 'DeviceRegistration', result: { $ref: '#/components/schemas/DeviceLine' } },
  uploadRecipients: { line: 'Recipient', result: { type: 'object', anyOf: [{ required: ['user'] }, { required: ['error'] }] } },
}

/** Throws unless the document describes the request. */
export function checkRequest(method: string, url: URL, headers: Headers, text: string | undefined): Operation {
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
    if (type === 'application/json') check(`body of ${key}`, content[type].schema, JSON.parse(text))
    else for (const line of text.trimEnd().split('\n')) check(`line of ${key}`, { $ref: `#/components/schemas/${LINES[operation.operationId]!.line}` }, JSON.parse(line))
  }
  return operation
}

/** Throws unless the document describes the answer. */
export function checkAnswer(operation: Operation, status: number, type: string, text: string): void {
  let answer = operation.responses[status]
  if (answer?.$ref) answer = document.components.responses[answer.$ref.split('/').at(-1)!]
  if (!answer) throw new Error(`${operation.operationId}: status ${status} is not documented: ${text}`)
  const content = answer.content?.[type]
  if (!content) {
    if (text) throw new Error(`${operation.operationId}: content type ${type} of ${status} is not documented`)
  } else if (type === 'application/x-ndjson') {
    for (const line of text.trimEnd().split('\n')) check(`line of ${operation.operationId}`, LINES[operation.operationId]!.result, JSON.parse(line))
  } else {
    check(`answer of ${operation.operationId}`, content.schema, JSON.parse(text))
  }
}
