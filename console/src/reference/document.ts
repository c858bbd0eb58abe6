/**
 * The OpenAPI documents of the node, as far as the reference shows them. They are part of the page: a node serves the page
 * and the documents of the same build, and the console's address has only one of the three.
 */

import type { Permission } from '../api/permission'
import type { Schema } from './schema'

export type Name = 'provider' | 'admin' | 'session'
export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'

/** What a person needs; `everywhere` is a role in all apps. */
export interface Needed { where: 'app' | 'everywhere' | 'person' | 'anybody'; permission?: Permission; dangerous?: boolean }

/** An operation in the list; operations without `needed` are not for people. */
export interface Listed {
  id: string
  method: Method
  path: string
  tag: string
  summary: string
  /** Which documents describe it. */
  documents: readonly Name[]
  needed?: Needed
}

export interface Parameter { name: string; in: 'path' | 'query' | 'header'; required?: boolean; description?: string; schema: Schema; example?: unknown }
export interface Media { schema?: Schema; example?: unknown; examples?: Record<string, { summary?: string; value: unknown }> }
export interface Answer { description: string; content?: Record<string, Media>; headers?: Record<string, { description?: string; schema?: Schema }> }
export interface Operation {
  description?: string
  security?: Record<string, unknown>[]
  parameters?: Parameter[]
  requestBody?: { required?: boolean; description?: string; content: Record<string, Media> }
  responses: Record<string, Answer | { $ref: string }>
}
export interface Document {
  paths: Record<string, Record<string, Operation>>
  components: { schemas: Record<string, Schema>; responses?: Record<string, Answer>; securitySchemes?: Record<string, { description?: string }> }
}

const LOADERS: Record<Name, () => Promise<{ default: unknown }>> = {
  provider: () => import('../../../crates/api/openapi.json'),
  admin: () => import('../../../crates/api/openapi-admin.json'),
  session: () => import('../../../crates/api/openapi-console.json'),
}

/** The document that describes an operation; several are alike, so the first one counts. */
export const documentOf = async ({ documents }: Listed): Promise<Document> =>
  (await LOADERS[documents[0] as Name]()).default as Document

export function operationIn(document: Document, { path, method }: Listed): Operation {
  const operation = document.paths[path]?.[method.toLowerCase()]
  if (!operation) throw new Error(`the document has no ${method} ${path}`)
  return operation
}

export function answerIn(document: Document, answer: Answer | { $ref: string }): Answer {
  if (!('$ref' in answer)) return answer
  const found = document.components.responses?.[answer.$ref.replace('#/components/responses/', '')]
  if (!found) throw new Error(`the document has no ${answer.$ref}`)
  return found
}

/** An answer that does not end, such as the live tail. */
export const isStream = (document: Document, { responses }: Operation): boolean =>
  Object.values(responses).some((answer) => 'text/event-stream' in (answerIn(document, answer).content ?? {}))

/** The error codes that the description of an answer lists: `` `code`: Sentence; `code`: Sentence. `` */
export function codesOf(description: string): { code: string; text: string }[] {
  return description.split(/(?:[;.]\s+|^)(?=`[a-z_]+`: )/)
    .flatMap((part) => { const [, code, text] = /^`([a-z_]+)`: ([^]*?)[.;]?$/.exec(part) ?? []; return code && text ? [{ code, text }] : [] })
}

/** Scopes of API keys that allow an operation, which its description names. */
export const scopesOf = ({ description = '', security = [] }: Operation): string[] =>
  security.some((one) => 'apiKey' in one) ? [...description.matchAll(/scopes? `(\w+)`/g)].map(([, scope = '']) => scope) : []

/** Every word that a person typed must occur; paths and ids come first. */
export function find(operations: readonly Listed[], typed: string): Listed[] {
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean)
  const rank = ({ id, method, path, tag, summary }: Listed): number => {
    const near = `${method} ${path} ${id}`.toLowerCase()
    const all = `${near} ${tag} ${summary}`.toLowerCase()
    if (!words.every((word) => all.includes(word))) return 0
    if (id.toLowerCase() === words.join('') || path === words.at(-1)) return 3
    return words.every((word) => near.includes(word)) ? 2 : 1
  }
  return operations
    .map((operation, index) => ({ operation, index, rank: rank(operation) }))
    .filter((entry) => entry.rank > 0)
    .sort((a, b) => (words.length ? b.rank - a.rank : 0) || a.index - b.index)
    .map(({ operation }) => operation)
}
