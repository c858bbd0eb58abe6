/** A request as a person filled it in: for the session that tries it, and for the snippets. */

import type { Listed, Method, Operation, Parameter } from './document'

/** A header's text, or the environment variable that has its secret part: `Bearer $NOROSHI_KEY`. */
export type HeaderValue = string | { before: string; variable: string }
export interface Call { method: Method; url: string; headers: readonly (readonly [name: string, value: HeaderValue])[]; body?: string | undefined; json: boolean }

export interface Filled {
  /** By the name of the parameter. */
  values: Readonly<Record<string, string>>
  body?: string | undefined
  type?: string | undefined
}

/** The page sets the app itself. */
const OWN = new Set(['Noroshi-App'])
export const parametersOf = ({ parameters = [] }: Operation): Parameter[] => parameters.filter(({ name }) => !OWN.has(name))

/** Lone surrogates are not text: the browser would replace them too. */
export const wellFormed = (text: string): string => text.replace(/[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/g, '\uFFFD')
/** RFC 3986: everything but unreserved characters. */
export const encode = (text: string): string =>
  encodeURIComponent(wellFormed(text)).replace(/[!'()*]/g, (letter) => `%${letter.charCodeAt(0).toString(16).toUpperCase()}`)

export type Fault = 'missing' | 'dots' | 'header'
/** Why a value cannot be sent. */
export function faultOf({ name, in: place, required }: Parameter, values: Filled['values']): Fault | undefined {
  const value = values[name] ?? ''
  if (value === '') return required || place === 'path' ? 'missing' : undefined
  // The URL standard removes these parts of a path, also if they are encoded.
  if (place === 'path' && (value === '.' || value === '..')) return 'dots'
  if (place === 'header' && !/^[\t\x20-\x7e]*$/.test(value)) return 'header'
  return undefined
}

/** Path and query; empty values of the query are left out. */
export function target({ path }: Listed, operation: Operation, { values }: Filled): string {
  const filled = path.replace(/\{(\w+)\}/g, (whole, name: string) => (values[name] ? encode(values[name]) : whole))
  const query = parametersOf(operation)
    .filter(({ name, in: place }) => place === 'query' && values[name])
    .map(({ name }) => `${encode(name)}=${encode(values[name] ?? '')}`)
  return filled + (query.length > 0 ? `?${query.join('&')}` : '')
}

export function headersOf(operation: Operation, { values, body, type }: Filled): [string, string][] {
  const named = parametersOf(operation).filter(({ name, in: place }) => place === 'header' && values[name])
  return [
    ...(body !== undefined && type ? [['Content-Type', type] as [string, string]] : []),
    ...named.map(({ name }): [string, string] => [name, values[name] ?? '']),
  ]
}

/** How a program proves who it is. Secrets are environment variables. */
export function proofOf(listed: Listed, operation: Operation): [string, HeaderValue][] {
  const [document] = listed.documents
  const scheme = (name: string): boolean => operation.security?.some((one) => name in one) ?? false
  if (scheme('apiKey')) return [['Authorization', { before: 'Bearer ', variable: 'NOROSHI_KEY' }]]
  if (scheme('deviceToken')) return [['Authorization', { before: 'Bearer ', variable: 'NOROSHI_DEVICE_TOKEN' }]]
  if (scheme('operatorToken')) return [['Authorization', { before: 'Bearer ', variable: 'NOROSHI_OPERATOR_TOKEN' }]]
  if (scheme('vapid')) return [['Authorization', { before: '', variable: 'NOROSHI_VAPID' }]]
  if (document === 'session' && scheme('session')) {
    const cookie: [string, HeaderValue] = ['Cookie', { before: 'noroshi_session=', variable: 'NOROSHI_SESSION' }]
    return listed.method === 'GET' ? [cookie] : [cookie, ['Noroshi-Csrf', { before: '', variable: 'NOROSHI_CSRF' }]]
  }
  return []
}

const isJson = (type: string | undefined): boolean => type !== undefined && /[/+]json$/.test(type)

export function callOf(base: string, listed: Listed, operation: Operation, filled: Filled, app?: string): Call {
  const needsApp = listed.documents[0] === 'session' && listed.needed?.where === 'app' && !listed.path.startsWith('/v1/apps') && app !== undefined
  return {
    method: listed.method,
    url: base.replace(/\/+$/, '') + target(listed, operation, filled),
    headers: [...proofOf(listed, operation), ...(needsApp ? [['Noroshi-App', app] as const] : []), ...headersOf(operation, filled)],
    body: filled.body === undefined ? undefined : wellFormed(filled.body),
    json: isJson(filled.type),
  }
}
