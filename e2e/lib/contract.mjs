/** The OpenAPI documents that a node serves, as operations that a test can call. */

/** Every operation of a document: `{method, path, security, body}`. `body` is the document's own example, if it has one. */
export function operations(document) {
  const methods = ['get', 'post', 'put', 'patch', 'delete']
  return Object.entries(document.paths).flatMap(([path, item]) =>
    methods
      .filter((method) => item[method])
      .map((method) => ({
        method: method.toUpperCase(),
        path,
        security: (item[method].security ?? []).map((one) => Object.keys(one)[0] ?? 'none'),
        body: example(item[method].requestBody?.content),
      })),
  )
}

/** `{type, text}` of the first example, `undefined` for an operation without a body. */
function example(content) {
  if (!content) return undefined
  const [type, media] = Object.entries(content)[0]
  const value = media.example ?? Object.values(media.examples ?? {})[0]?.value ?? {}
  return { type, text: typeof value === 'string' ? value : JSON.stringify(value) }
}

/** Fills in the parameters of the path; fails for an unknown parameter, so that none is forgotten. */
export function fill(path, values) {
  return path.replace(/\{(\w+)\}/g, (_, name) => {
    const value = values(path, name)
    if (value === undefined) throw new Error(`${path}: the test has no value for {${name}}`)
    return encodeURIComponent(value)
  })
}
