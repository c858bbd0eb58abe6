import { expect, test } from 'vitest'

import { callOf, faultOf, parametersOf, target } from '../../src/reference/call'
import { answerIn, codesOf, type Document, documentOf, find, isStream, type Listed, operationIn, scopesOf } from '../../src/reference/document'
import { kindsIn, personal } from '../../src/reference/names'
import { OPERATIONS } from '../../src/reference/operations'
import { alternatives, core, descriptions, fields, isNullable, limits, sample, type Schema, typeText } from '../../src/reference/schema'
import { operationsOf, routesOf } from '../../scripts/operations.mjs'

const operation = (id: string): Listed => {
  const found = OPERATIONS.find((one) => one.id === id)
  if (!found) throw new Error(id)
  return found
}

test('every operation has a document, a title and answers', async () => {
  for (const listed of OPERATIONS) {
    const document = await documentOf(listed)
    const found = operationIn(document, listed)
    expect(listed.summary, listed.id).toBeTruthy()
    for (const answer of Object.values(found.responses)) expect(answerIn(document, answer).description, listed.id).toBeTruthy()
  }
})

test('streams are known: a form would wait for their end', async () => {
  const streams = await Promise.all(OPERATIONS.map(async (listed) => {
    const document = await documentOf(listed)
    return isStream(document, operationIn(document, listed)) ? `${listed.method} ${listed.path}` : undefined
  }))
  expect(streams.filter(Boolean).sort()).toEqual(['GET /v1/apps/{app}/live', 'GET /v1/events', 'GET /v1/live', 'GET /v1/tail'])
})

test('each schema of the documents can be drawn', async () => {
  const seen = new Set<unknown>()
  function draw(schema: Schema, { schemas }: Document['components'], depth = 0): void {
    if (seen.has(schema) || depth > 12) return
    seen.add(schema)
    expect(typeText(schema, schemas)).toMatch(/\S/)
    limits(schema, schemas)
    sample(schema, schemas)
    for (const field of fields(schema, schemas)) draw(field.schema, { schemas }, depth + 1)
    for (const option of alternatives(schema, schemas)) draw(option, { schemas }, depth + 1)
  }
  for (const id of ['publish', 'apps', 'showSession']) {
    const document = await documentOf(operation(id))
    for (const schema of Object.values(document.components.schemas)) draw(schema, document.components)
  }
  expect(seen.size).toBeGreaterThan(300)
})

test('examples of bodies pass as JSON', async () => {
  for (const listed of OPERATIONS) {
    const found = operationIn(await documentOf(listed), listed)
    for (const [type, media] of Object.entries(found.requestBody?.content ?? {})) {
      if (!type.endsWith('json') || type.includes('ndjson')) continue
      const value = media.example ?? Object.values(media.examples ?? {})[0]?.value ?? sample(media.schema ?? {}, (await documentOf(listed)).components.schemas)
      expect(typeof value, listed.id).toBe('object')
    }
  }
})

test('the search wants every word, and paths come first', () => {
  expect(find(OPERATIONS, '')).toHaveLength(OPERATIONS.length)
  expect(find(OPERATIONS, 'post /v1/notifications')[0]?.id).toBe('publish')
  expect(find(OPERATIONS, 'retained topic').map(({ id }) => id)).toContain('retained')
  expect(find(OPERATIONS, 'publish')[0]?.id).toBe('publish')
  expect(find(OPERATIONS, 'publish xyzzy')).toEqual([])
})

test('what people need comes from the routes', () => {
  expect(operation('publish').needed).toEqual({ where: 'app', permission: 'publish' })
  expect(operation('deleteApp').needed).toEqual({ where: 'app', permission: 'own', dangerous: true })
  expect(operation('nodes').needed).toEqual({ where: 'everywhere', permission: 'read' })
  expect(operation('relay').needed).toBeUndefined()
  expect(routesOf('get("/a", x::y).in_app(Read),\n post(\n "/b",\n x::z,\n)\n.on_node(Own)\n.dangerous(), delete("/c", d)')).toEqual(new Map([
    ['GET /a', { where: 'app', permission: 'read' }], ['POST /b', { where: 'everywhere', permission: 'own', dangerous: true }],
  ]))
  expect(() => routesOf('get("/a", |x| y)')).toThrow('1 routes')
  expect(() => routesOf('get("/a", x).in_space(Read)')).toThrow('unknown in_space')
  expect(() => operationsOf({ admin: { paths: {} } }, 'get("/a", x).in_app(Read)')).toThrow('no document describes GET /a')
})

test('scopes and error codes come from the descriptions', async () => {
  expect(scopesOf(operationIn(await documentOf(operation('publish')), operation('publish')))).toEqual(['publish'])
  expect(scopesOf(operationIn(await documentOf(operation('registerDevice')), operation('registerDevice')))).toEqual(['devices'])
  expect(codesOf('`a_b`: First; `c`: `X` is neither `y` nor `z`. `d`: Last.')).toEqual([
    { code: 'a_b', text: 'First' }, { code: 'c', text: '`X` is neither `y` nor `z`' }, { code: 'd', text: 'Last' },
  ])
  expect(codesOf('Just words.')).toEqual([])
})

test('types, nullable values, unions and limits', () => {
  const schemas: Record<string, Schema> = {
    Name: { type: 'string', maxLength: 5, description: 'A name.' },
    Loop: { type: 'object', properties: { next: { anyOf: [{ $ref: '#/components/schemas/Loop' }, { type: 'null' }] } }, required: ['next'] },
  }
  const ref = { $ref: '#/components/schemas/Name' }
  expect(typeText({ type: 'array', items: ref }, schemas)).toBe('array of string')
  expect(typeText({ type: 'array', items: { $ref: '#/components/schemas/Loop' } }, schemas)).toBe('array of Loop')
  expect(descriptions({ anyOf: [ref, { type: 'null' }], description: 'Here.' }, schemas)).toEqual(['Here.', 'A name.'])
  expect(typeText({ oneOf: [{ type: 'integer' }, { const: 'unlimited' }, { type: 'null' }] }, schemas)).toBe('integer | "unlimited"')
  expect(isNullable({ type: ['string', 'null'] })).toBe(true)
  expect(isNullable({ anyOf: [ref, { type: 'null' }] })).toBe(true)
  expect(isNullable({ type: 'string' })).toBe(false)
  expect(core({ anyOf: [ref, { type: 'null' }], description: 'Here.' }, schemas)).toMatchObject({ maxLength: 5, description: 'Here.' })
  expect(limits({ type: ['string', 'null'], enum: ['a', null], default: 'a' }, schemas)).toEqual([{ kind: 'values', values: ['a'] }, { kind: 'default', text: '"a"' }])
  expect(fields({ type: 'object', additionalProperties: ref }, schemas)).toEqual([{ name: '*', schema: ref, required: false }])
  // Schemas refer to themselves.
  expect(JSON.stringify(sample(schemas['Loop'] as Schema, schemas)).length).toBeLessThan(200)
  expect(() => core({ $ref: '#/components/schemas/Missing' }, schemas)).toThrow('no schema Missing')
})

test('paths and queries carry any text', async () => {
  const listed = operation('topic')
  const found = operationIn(await documentOf(listed), listed)
  expect(target(listed, found, { values: { topic: "a/b c'é?#%[x]*" } })).toBe('/v1/topics/a%2Fb%20c%27%C3%A9%3F%23%25%5Bx%5D%2A')
  const list = operation('devices')
  expect(target(list, operationIn(await documentOf(list), list), { values: { user: 'a&b=c', limit: '', after: '' } })).toBe('/v1/devices?user=a%26b%3Dc')
  const [parameter] = parametersOf(found)
  expect(faultOf(parameter!, { topic: '..' })).toBe('dots')
  expect(faultOf(parameter!, {})).toBe('missing')
  expect(faultOf({ name: 'X', in: 'header', schema: {} }, { X: 'a\nb' })).toBe('header')
})

test('a call has the credential of its operation as a variable', async () => {
  const headers = async (id: string) => {
    const listed = operation(id)
    return callOf('https://n.example/', listed, operationIn(await documentOf(listed), listed), { values: {} }, 'shop').headers
  }
  expect(await headers('publish')).toEqual([['Authorization', { before: 'Bearer ', variable: 'NOROSHI_KEY' }]])
  expect(await headers('me')).toEqual([['Authorization', { before: 'Bearer ', variable: 'NOROSHI_DEVICE_TOKEN' }]])
  expect(await headers('nodes')).toEqual([['Authorization', { before: 'Bearer ', variable: 'NOROSHI_OPERATOR_TOKEN' }]])
  expect((await headers('sendTest')).map(([name]) => name)).toEqual(['Cookie', 'Noroshi-Csrf', 'Noroshi-App'])
  expect(await headers('livez')).toEqual([])
})

test('examples name what the app has, where they name recipients', () => {
  expect(kindsIn('/v1/apps/{app}/experiments/{name}/devices/{device}')).toEqual([['app', 'app'], ['name', 'experiment'], ['device', 'device']])
  const names = { app: 'shop', user: 'ann', device: 'd1', topic: 'offers' }
  expect(personal({ to: { users: ['u1', 'u2'] }, data: { users: ['x'], topic: 'y' } }, names, 'publish')).toEqual({ to: { users: ['ann'] }, data: { users: ['x'], topic: 'y' } })
  expect(personal({ audience: { topic: 'news' } }, names, 'createCampaign')).toEqual({ audience: { topic: 'offers' } })
  expect(personal({ device: 'new', user: 'u1' }, names, 'registerDevice')).toEqual({ device: 'new', user: 'u1' })
  expect(personal({ users: ['u1'] }, names, 'presence')).toEqual({ users: ['ann'] })
  expect(personal({ roles: [{ app: 'dev' }, { app: '*' }] }, names, 'invite')).toEqual({ roles: [{ app: 'shop' }, { app: '*' }] })
})
