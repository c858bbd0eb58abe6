/** JSON Schema (2020-12) as the OpenAPI documents use it: references, unions, nullable types, constraints. */

export interface Schema {
  $ref?: string
  type?: string | string[]
  description?: string
  properties?: Record<string, Schema>
  required?: string[]
  additionalProperties?: boolean | Schema
  propertyNames?: Schema
  items?: Schema
  oneOf?: Schema[]
  anyOf?: Schema[]
  enum?: unknown[]
  const?: unknown
  default?: unknown
  example?: unknown
  examples?: unknown[]
  format?: string
  pattern?: string
  minLength?: number
  maxLength?: number
  minimum?: number
  maximum?: number
  minItems?: number
  maxItems?: number
  minProperties?: number
  maxProperties?: number
  title?: string
}

export type Schemas = Record<string, Schema>

export const nameOf = ({ $ref }: Schema): string | undefined => $ref?.replace('#/components/schemas/', '')

/** Follows a reference; the words beside it come first. */
export function resolve(schema: Schema, schemas: Schemas): Schema {
  const name = nameOf(schema)
  if (name === undefined) return schema
  const target = schemas[name]
  if (!target) throw new Error(`the document has no schema ${name}`)
  const { $ref, ...beside } = schema
  return { ...resolve(target, schemas), ...beside }
}

const isNull = (schema: Schema): boolean => schema.type === 'null'
const types = ({ type }: Schema): string[] => (type === undefined ? [] : Array.isArray(type) ? type : [type])

/** The alternatives of a union without `null`. */
export const choices = (schema: Schema): Schema[] => (schema.oneOf ?? schema.anyOf ?? []).filter((one) => !isNull(one))

export const isNullable = (schema: Schema): boolean =>
  types(schema).includes('null') || (schema.oneOf ?? schema.anyOf ?? []).some(isNull)

/** A union with one alternative apart from `null` is that alternative. */
export function core(schema: Schema, schemas: Schemas): Schema {
  const resolved = resolve(schema, schemas)
  const alternatives = choices(resolved)
  if (alternatives.length !== 1) return resolved
  const { oneOf, anyOf, ...beside } = resolved
  const { description, ...rest } = core(alternatives[0] as Schema, schemas)
  return { ...rest, ...(description === undefined ? {} : { description }), ...beside }
}

/** What a schema says about itself, then what the schemas that it refers to say. */
export function descriptions(schema: Schema, schemas: Schemas): string[] {
  const name = nameOf(schema)
  const target = name === undefined ? undefined : schemas[name]
  const [only, ...others] = choices(schema)
  const inner = target ?? (others.length === 0 ? only : undefined)
  return [...new Set([...(schema.description ? [schema.description] : []), ...(inner ? descriptions(inner, schemas) : [])])]
}

const hasFields = (schema: Schema, schemas: Schemas): boolean => fields(schema, schemas).length > 0 || alternatives(schema, schemas).length > 0

/** `string`, `array of Recipient`, `"unlimited" | integer`: names of schemas with fields stay names. */
export function typeText(schema: Schema, schemas: Schemas): string {
  const name = nameOf(schema)
  if (name !== undefined) return hasFields(schema, schemas) ? name : typeText(resolve({ $ref: schema.$ref as string }, schemas), schemas)
  const alternatives = choices(schema)
  if (alternatives.length > 0) return alternatives.map((one) => typeText(one, schemas)).join(' | ')
  if (schema.const !== undefined) return JSON.stringify(schema.const)
  const own = types(schema).filter((type) => type !== 'null')
  if (own.includes('array') && schema.items) return `array of ${typeText(schema.items, schemas)}`
  if (own.includes('object') && !schema.properties && typeof schema.additionalProperties === 'object') return `object of ${typeText(schema.additionalProperties, schemas)}`
  return own.join(' | ') || (schema.properties ? 'object' : 'any')
}

export type Limit =
  | { kind: 'length' | 'items' | 'properties' | 'range'; min: number | undefined; max: number | undefined }
  | { kind: 'format' | 'pattern'; text: string }
  | { kind: 'values'; values: string[] }
  | { kind: 'default'; text: string }

export function limits(schema: Schema, schemas: Schemas): Limit[] {
  const own = core(schema, schemas)
  const found: Limit[] = []
  const range = (kind: 'length' | 'items' | 'properties' | 'range', min: number | undefined, max: number | undefined): void => {
    if (min !== undefined || max !== undefined) found.push({ kind, min, max })
  }
  const values = own.enum ?? (own.type === 'array' && own.items ? core(own.items, schemas).enum : undefined)
  if (values) found.push({ kind: 'values', values: values.filter((value) => value !== null).map((value) => (typeof value === 'string' ? value : JSON.stringify(value))) })
  range('range', own.minimum, own.maximum)
  range('length', own.minLength, own.maxLength)
  range('items', own.minItems, own.maxItems)
  range('properties', own.minProperties, own.maxProperties)
  if (own.format) found.push({ kind: 'format', text: own.format })
  if (own.pattern) found.push({ kind: 'pattern', text: own.pattern })
  if (own.default !== undefined) found.push({ kind: 'default', text: JSON.stringify(own.default) })
  return found
}

export interface Field { name: string; schema: Schema; required: boolean }

/** The fields of an object, of the items of an array, or of the values of a map; `*` stands for any name. */
export function fields(schema: Schema, schemas: Schemas): Field[] {
  const own = core(schema, schemas)
  if (types(own).includes('array') && own.items) return fields(own.items, schemas)
  const named = Object.entries(own.properties ?? {})
    .map(([name, field]): Field => ({ name, schema: field, required: own.required?.includes(name) ?? false }))
  const rest = own.additionalProperties
  return typeof rest === 'object' && (fields(rest, schemas).length > 0 || !own.properties) && Object.keys(rest).length > 0
    ? [...named, { name: '*', schema: rest, required: false }]
    : named
}

/** Alternatives that are worth a heading each: at least one has fields. */
export function alternatives(schema: Schema, schemas: Schemas): Schema[] {
  const own = core(schema, schemas)
  const item = types(own).includes('array') && own.items ? core(own.items, schemas) : own
  const found = choices(item)
  return found.some((one) => fields(one, schemas).length > 0) ? found : []
}

const DEPTH_MAX = 6

/** A small value of a schema, for bodies without an example: its required fields only. */
export function sample(schema: Schema, schemas: Schemas, depth = 0): unknown {
  const own = core(schema, schemas)
  if (own.example !== undefined) return own.example
  if (own.examples?.length) return own.examples[0]
  if (own.const !== undefined) return own.const
  if (own.default !== undefined) return own.default
  if (own.enum) return own.enum[0]
  const [first] = choices(own)
  if (first) return sample(first, schemas, depth)
  const [type] = types(own).filter((one) => one !== 'null')
  if (type === 'array') return own.items && (own.minItems ?? 0) > 0 && depth < DEPTH_MAX ? [sample(own.items, schemas, depth + 1)] : []
  if (type === 'integer' || type === 'number') return own.minimum ?? 0
  if (type === 'boolean') return false
  if (type === 'string') return own.format === 'date-time' ? '2030-01-01T00:00:00Z' : ''
  if (depth >= DEPTH_MAX) return {}
  return Object.fromEntries(fields(own, schemas).filter(({ required }) => required).map(({ name, schema: field }) => [name, sample(field, schemas, depth + 1)]))
}
