/**
 * A call as a program in four languages, with nothing to install. Secrets are environment variables. Every text is escaped
 * for its language; a JSON body is a literal of the language if that sends the same JSON, else a text.
 */

import type { Call, HeaderValue } from './call'

export const LANGUAGES = { curl: 'curl', typescript: 'TypeScript', python: 'Python', go: 'Go' } as const
export type Language = keyof typeof LANGUAGES

/** Whitespace between tokens removed. */
export const dense = (json: string): string => json.replace(/("(?:[^"\\]|\\.)*")|\s+/g, (_, text: string | undefined) => text ?? '')

/** The value of a JSON text, if printing it gives the same JSON: not with large numbers or names given twice. */
function literal(text: string): { value: unknown } | undefined {
  try {
    const value: unknown = JSON.parse(text)
    return JSON.stringify(value) === dense(text) ? { value } : undefined
  } catch {
    return undefined
  }
}

/* curl */

/** For a POSIX shell. */
export const shell = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`

const shellHeader = (name: string, value: HeaderValue): string =>
  typeof value === 'string' ? shell(`${name}: ${value}`) : `"${name}: ${value.before}$${value.variable}"`

/** JSON with a field per line. */
function readable(text: string): string {
  const known = literal(text)
  return known ? JSON.stringify(known.value, null, 2) : text
}

function curl({ method, url, headers, body, json }: Call): string {
  const parts = [
    `curl -sS${method === 'GET' ? '' : ` -X ${method}`} ${shell(url)}`,
    ...headers.map(([name, value]) => `-H ${shellHeader(name, value)}`),
    // Not --data, which reads a file if the text begins with @.
    ...(body === undefined ? [] : [`--data-raw ${shell(json ? readable(body) : body)}`]),
  ]
  return parts.join(' \\\n  ')
}

/* TypeScript */

export function typescriptText(text: string): string {
  const inner = JSON.stringify(text).slice(1, -1)
  return `'${inner.replace(/\\(.)|'/g, (whole, escaped: string | undefined) => (whole === "'" ? "\\'" : escaped === '"' ? '"' : whole))}'`
}

const typescriptKey = (name: string): string => (/^[A-Za-z_]\w*$/.test(name) ? name : typescriptText(name))

function typescriptValue(value: unknown, indent: string): string {
  if (typeof value === 'string') return typescriptText(value)
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  const deeper = `${indent}  `
  if (Array.isArray(value)) return block(value.map((one) => typescriptValue(one, deeper)), '[', ']', indent)
  return block(Object.entries(value).map(([name, one]) => `${typescriptKey(name)}: ${typescriptValue(one, deeper)}`), '{', '}', indent)
}

const LINE_MAX = 72

/** On one line if it is short. */
function block(parts: string[], open: string, close: string, indent: string): string {
  if (parts.length === 0) return open + close
  const space = open === '{' ? ' ' : ''
  const line = `${open}${space}${parts.join(', ')}${space}${close}`
  if (!line.includes('\n') && line.length + indent.length <= LINE_MAX) return line
  return `${open}\n${parts.map((part) => `${indent}  ${part},`).join('\n')}\n${indent}${close}`
}

/** In a literal, this name would set the prototype. */
const setsPrototype = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && Object.entries(value).some(([name, one]) => name === '__proto__' || setsPrototype(one))

function typescript({ method, url, headers, body, json }: Call): string {
  const lines = [`  method: '${method}',`]
  if (headers.length > 0) {
    lines.push('  headers: {')
    for (const [name, value] of headers) {
      const text = typeof value === 'string' ? typescriptText(value)
        : value.before === '' ? `process.env.${value.variable} ?? ''` : `\`${value.before}\${process.env.${value.variable}}\``
      lines.push(`    ${typescriptKey(name)}: ${text},`)
    }
    lines.push('  },')
  }
  if (body !== undefined) {
    const known = json ? literal(body) : undefined
    lines.push(known && !setsPrototype(known.value) ? `  body: JSON.stringify(${typescriptValue(known.value, '  ')}),` : `  body: ${typescriptText(body)},`)
  }
  return `const response = await fetch(${typescriptText(url)}, {\n${lines.join('\n')}\n})\nconsole.log(response.status, await response.text())\n`
}

/* Python */

/** The escapes of JSON mean the same in Python. */
export const pythonText = (text: string): string => JSON.stringify(text)

function pythonValue(value: unknown, indent: string): string {
  if (value === null) return 'None'
  if (typeof value === 'boolean') return value ? 'True' : 'False'
  if (typeof value === 'string') return pythonText(value)
  if (typeof value !== 'object') return JSON.stringify(value)
  const deeper = `${indent}    `
  const entries = Array.isArray(value)
    ? value.map((one) => pythonValue(one, deeper))
    : Object.entries(value).map(([name, one]) => `${pythonText(name)}: ${pythonValue(one, deeper)}`)
  const [open, close] = Array.isArray(value) ? ['[', ']'] : ['{', '}']
  const line = `${open}${entries.join(', ')}${close}`
  if (!line.includes('\n') && line.length + indent.length <= LINE_MAX) return line
  return `${open}\n${entries.map((part) => `${indent}    ${part},`).join('\n')}\n${indent}${close}`
}

function python({ method, url, headers, body, json }: Call): string {
  const known = body !== undefined && json ? literal(body) : undefined
  const secret = headers.some(([, value]) => typeof value !== 'string')
  const lines = [...(known ? ['import json'] : []), ...(secret ? ['import os'] : []), 'import urllib.error', 'import urllib.request', '']
  lines.push('request = urllib.request.Request(', `    ${pythonText(url)},`, `    method="${method}",`)
  if (headers.length > 0) {
    lines.push('    headers={')
    for (const [name, value] of headers) {
      const text = typeof value === 'string' ? pythonText(value)
        : `${value.before ? `${pythonText(value.before)} + ` : ''}os.environ["${value.variable}"]`
      lines.push(`        ${pythonText(name)}: ${text},`)
    }
    lines.push('    },')
  }
  if (body !== undefined) lines.push(`    data=${known ? `json.dumps(${pythonValue(known.value, '    ')})` : pythonText(body)}.encode(),`)
  lines.push(')', 'try:', '    response = urllib.request.urlopen(request)', 'except urllib.error.HTTPError as error:', '    response = error', 'print(response.status, response.read().decode())', '')
  return lines.join('\n')
}

/* Go */

/** The compiler refuses a byte order mark in the middle of a file. */
export const goText = (text: string): string => JSON.stringify(text).replaceAll('\uFEFF', '\\ufeff')

/** Raw strings have no escapes, and the compiler removes their carriage returns. */
export const goBody = (text: string): string => (/[`\r\0\uFEFF]/.test(text) ? goText(text) : `\`${text}\``)

function go({ method, url, headers, body, json }: Call): string {
  const secret = headers.some(([, value]) => typeof value !== 'string')
  const imports = ['fmt', 'io', 'net/http', ...(secret ? ['os'] : []), ...(body === undefined ? [] : ['strings'])]
  const lines = ['package main', '', 'import (', ...imports.map((name) => `\t"${name}"`), ')', '', 'func main() {']
  if (body !== undefined) lines.push(`\tbody := strings.NewReader(${goBody(json ? readable(body) : body)})`)
  lines.push(`\trequest, err := http.NewRequest("${method}", ${goText(url)}, ${body === undefined ? 'nil' : 'body'})`, '\tif err != nil {', '\t\tpanic(err)', '\t}')
  for (const [name, value] of headers) {
    const text = typeof value === 'string' ? goText(value) : `${value.before ? `${goText(value.before)}+` : ''}os.Getenv("${value.variable}")`
    lines.push(`\trequest.Header.Set(${goText(name)}, ${text})`)
  }
  lines.push(
    '\tresponse, err := http.DefaultClient.Do(request)', '\tif err != nil {', '\t\tpanic(err)', '\t}',
    '\tdefer response.Body.Close()', '\tanswer, err := io.ReadAll(response.Body)', '\tif err != nil {', '\t\tpanic(err)', '\t}',
    '\tfmt.Println(response.StatusCode, string(answer))', '}', '',
  )
  return lines.join('\n')
}

const WRITERS: Record<Language, (call: Call) => string> = { curl, typescript, python, go }
export const snippet = (language: Language, call: Call): string => WRITERS[language](call)
