/**
 * Writes src/api.ts, the schemas of the OpenAPI document, and src/paths.ts, the requests that an API key may make.
 *
 *   node scripts/types.mjs [FOLDER]
 */

import { readFileSync, writeFileSync } from 'node:fs'
import openapi, { astToString } from 'openapi-typescript'
import ts from 'typescript'

process.chdir(new URL('..', import.meta.url).pathname)
const document = JSON.parse(readFileSync('../../../crates/api/openapi.json', 'utf8'))

/** For fronts of cells, not for backends. */
const EXCLUDED = ['relay']
/** Schemas of lines, which only descriptions name, and of errors. */
const ROOTS = ['Problem', 'Recipient', 'ReceiptLine', 'DeviceLine', 'Invalidation', 'Notification', 'DeviceRegistration']

const paths = {}
/** The names of the types of queries, by path and method. */
const queries = new Map()
for (const [path, methods] of Object.entries(document.paths)) {
  for (const [method, operation] of Object.entries(methods)) {
    if (!operation.security?.some((scheme) => 'apiKey' in scheme) || EXCLUDED.includes(operation.operationId)) continue
    queries.set(`${path} ${method}`, `${operation.operationId[0].toUpperCase()}${operation.operationId.slice(1)}Query`)
    const { parameters = [], requestBody, responses, description, summary } = operation
    const successes = Object.entries(responses).filter(([status]) => status < 400)
    paths[path] ??= {}
    paths[path][method] = {
      summary,
      description,
      ...(requestBody && { requestBody }),
      // The transport sets the headers.
      parameters: parameters.filter(({ in: place }) => place !== 'header'),
      responses: Object.fromEntries(successes.map(([status, { description, content }]) => [status, { description, ...(content && { content }) }])),
    }
  }
}

/** Removes examples, which fill half of the file; a property may have the name of a keyword. */
const bare = (schema, isSchema = true) => {
  if (Array.isArray(schema)) return schema.map((entry) => bare(entry))
  if (typeof schema !== 'object' || schema === null) return schema
  const kept = Object.entries(schema).filter(([keyword]) => !isSchema || (keyword !== 'example' && keyword !== 'examples'))
  return Object.fromEntries(kept.map(([keyword, value]) => [keyword, bare(value, !isSchema || (keyword !== 'properties' && keyword !== 'content'))]))
}

const schemas = {}
const add = (name) => {
  if (name in schemas) return
  schemas[name] = document.components.schemas[name]
  for (const [, next] of JSON.stringify(schemas[name]).matchAll(/"#\/components\/schemas\/(\w+)"/g)) add(next)
}
for (const name of ROOTS) add(name)
for (const [, name] of JSON.stringify(paths).matchAll(/"#\/components\/schemas\/(\w+)"/g)) add(name)
const sorted = Object.entries(schemas).sort(([a], [b]) => (a < b ? -1 : 1))
const components = { schemas: bare(Object.fromEntries(sorted), false) }

const f = ts.factory
const literal = (value) => f.createLiteralTypeNode(value === true ? f.createTrue() : f.createStringLiteral(value))
const nodes = await openapi({ openapi: document.openapi, info: document.info, paths: bare(paths, false), components }, {
  alphabetize: false,
  defaultNonNullable: false, // a field with a default may be absent from a request
  transform: ({ const: constant, type, properties, propertyNames, additionalProperties: values }) => {
    if (constant === true) return literal(true)
    // Any object: openapi-typescript takes it for an empty one.
    if ([type].flat().includes('object') && !properties && (values ?? true) === true) {
      const any = f.createTypeReferenceNode('Record', [f.createKeywordTypeNode(ts.SyntaxKind.StringKeyword), f.createKeywordTypeNode(ts.SyntaxKind.UnknownKeyword)])
      return [type].flat().includes('null') ? f.createUnionTypeNode([any, f.createLiteralTypeNode(f.createNull())]) : any
    }
    if (!propertyNames?.enum || !values) return undefined
    const value = values.$ref ? f.createTypeReferenceNode(values.$ref.split('/').at(-1)) : f.createKeywordTypeNode(ts.SyntaxKind.NumberKeyword)
    const keys = f.createUnionTypeNode(propertyNames.enum.map(literal))
    return f.createTypeReferenceNode('Partial', [f.createTypeReferenceNode('Record', [keys, value])])
  },
})

/** `components["schemas"]["Name"]` becomes `Name`. */
const named = (node) =>
  ts.visitEachChild(
    ts.isIndexedAccessTypeNode(node) && ts.isIndexedAccessTypeNode(node.objectType) && node.objectType.objectType.typeName?.text === 'components'
      ? f.createTypeReferenceNode(node.indexType.literal.text)
      : node,
    named,
    undefined,
  )

/** `{a} | {b}`, each with one field, becomes `{a, b?: never} | {a?: never, b}`: exactly one of them. */
function exclusive(type) {
  if (!ts.isUnionTypeNode(type) || !type.types.every((one) => ts.isTypeLiteralNode(one) && one.members.length === 1)) return type
  const fields = type.types.map((one) => one.members[0].name.text)
  const never = (name) => f.createPropertySignature(undefined, name, f.createToken(ts.SyntaxKind.QuestionToken), f.createKeywordTypeNode(ts.SyntaxKind.NeverKeyword))
  return f.createUnionTypeNode(
    type.types.map((one, own) => f.createTypeLiteralNode([...one.members, ...fields.filter((_, other) => other !== own).map(never)])),
  )
}

const exported = [f.createModifier(ts.SyntaxKind.ExportKeyword)]
const schemaTypes = []
const queryTypes = []

/** Takes the query of each operation out of `paths`, as a type of its own. */
function withQueries(node, path, method) {
  if (path && ts.isPropertySignature(node) && node.name.text === 'query' && node.type.members) {
    const name = queries.get(`${path} ${method}`)
    if (name in schemas) throw new Error(`the schema ${name} exists: the query of ${method} ${path} needs another name`)
    queryTypes.push(f.createInterfaceDeclaration(exported, name, undefined, undefined, node.type.members))
    return f.updatePropertySignature(node, node.modifiers, node.name, node.questionToken, f.createTypeReferenceNode(name))
  }
  const text = ts.isPropertySignature(node) ? node.name.text : undefined
  const inside = text?.startsWith('/') ? [text] : path && !method && text ? [path, text] : [path, method]
  return ts.visitEachChild(node, (child) => withQueries(child, ...inside), undefined)
}

let pathTypes
for (const node of nodes) {
  if (node.name?.text === 'paths') pathTypes = withQueries(named(node))
  if (node.name?.text !== 'components') continue
  for (const schema of node.members.find(({ name }) => name.text === 'schemas').type.members) {
    const type = exclusive(named(schema.type))
    const name = schema.name.text
    const declaration = ts.isTypeLiteralNode(type)
      ? f.createInterfaceDeclaration(exported, name, undefined, undefined, type.members)
      : f.createTypeAliasDeclaration(exported, name, undefined, type)
    for (const comment of ts.getSyntheticLeadingComments(schema) ?? []) ts.addSyntheticLeadingComment(declaration, comment.kind, comment.text, true)
    schemaTypes.push(declaration)
  }
}

const NEVER = /^ {8}\w+\?: never;\n|^ {12}(query|header|path|cookie|requestBody)\?: never;\n|^ {16}(query|header|path|cookie)\?: never;\n/gm
const text = (declarations) =>
  astToString(declarations)
    .replace(NEVER, '') // methods and kinds of parameters that a path lacks
    .replace(/^ *headers: \{\n *\[name: string\]: unknown;\n *\};\n/gm, '')
    .replace(/^ *parameters: \{\n *\};\n/gm, '')
    .replace(/^ *\/\*\* @(enum|constant) .*\n/gm, '')
    .replace(/^ *\* @(enum|constant).*\n/gm, '')
    .replace(/^( *\* \S.*)\n( *\*) @description /gm, '$1\n$2\n$2 ')
    .replace(/(\/\*\*|\*) @description /g, '$1 ')
    .replace(/^( *\*) {5}(?=\S)/gm, '$1 ')
    .replace(/^ *\* Format: [\w-]+\n *\*\n/gm, '')
const header = '/** Generated from crates/api/openapi.json by `npm run types`. Do not edit. */\n\n'
const pathText = text([pathTypes])
const known = [...schemaTypes, ...queryTypes].map(({ name }) => name.text)
const imported = known.filter((name) => new RegExp(`\\b${name}(\\[\\])?;`).test(pathText)).sort()

const folder = process.argv[2] ?? 'src'
writeFileSync(`${folder}/api.ts`, header + text([...schemaTypes, ...queryTypes]))
writeFileSync(`${folder}/paths.ts`, `${header}import type { ${imported.join(', ')} } from './api.js'\n\n${pathText}`)
