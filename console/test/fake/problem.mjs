/** An error that becomes a problem document. */
export class Problem extends Error {
  constructor(status, code, detail, field) {
    super(detail)
    Object.assign(this, { status, code, field })
  }

  body(requestId) {
    const { status, code, field } = this
    return { type: `/docs#${code}`, title: code.replaceAll('_', ' '), status, code, detail: this.message, ...(field && { field }), request_id: requestId }
  }
}

/** A body with exactly these fields, each of its type; a `?` at the end makes a field optional. */
export function fields(body, shape) {
  if (typeof body !== 'object' || body === null) throw new Problem(400, 'invalid_json', 'the body must be a JSON object')
  const names = Object.keys(shape).map((name) => name.replace('?', ''))
  for (const name of Object.keys(body)) if (!names.includes(name)) throw new Problem(400, 'unknown_field', `unknown field ${name}`, name)
  for (const [name, type] of Object.entries(shape)) {
    const value = body[name.replace('?', '')]
    if (value === undefined && name.endsWith('?')) continue
    const right = type === 'array' ? Array.isArray(value) : typeof value === type
    if (!right) throw new Problem(400, 'invalid_field', `${name} must be of type ${type}`, name)
  }
  return body
}
