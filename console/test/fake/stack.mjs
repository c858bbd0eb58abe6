/** Node, data, people and console together: for the end-to-end test, and with `npm run demo` for people. */

import { pathToFileURL } from 'node:url'

import { startNode } from './node.mjs'
import { seed, XSS } from './seed.mjs'
import { serve } from './server.mjs'
import { newSecret } from './totp.mjs'

export const PASSWORD = 'correct horse battery'

export async function startStack() {
  const node = await startNode()
  try {
    const ids = await seed(node)
    const server = await serve(node)
    const add = (email, name, roles, totp) => server.console.addPerson({ email, name, password: PASSWORD, roles, totp })
    const people = {
      owner: add('ada@example.com', 'Ada Lovelace', [{ app: '*', role: 'owner' }]),
      viewer: add('vera@example.com', 'Vera Rubin', [{ app: 'dev', role: 'viewer' }]),
      support: add('sam@example.com', 'Sam Carter', [{ app: 'dev', role: 'support' }]),
      author: add('mika@example.com', '佐藤 美佳', [{ app: 'shop', role: 'author' }, { app: 'dev', role: 'author' }]),
      second: add('tom@example.com', 'Tom Kilburn', [{ app: 'dev', role: 'operator' }], newSecret()),
      evil: add('eve@example.com', XSS, [{ app: 'dev', role: 'viewer' }]),
    }
    return { node, ids, ...server, people, async stop() { server.stop(); await node.stop() } }
  } catch (error) {
    await node.stop()
    throw error
  }
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const stack = await startStack()
  console.log(`${stack.origin}/console/\n`)
  for (const { email, roles } of Object.values(stack.people)) console.log(`${email.padEnd(20)} ${PASSWORD}   ${roles.map(({ app, role }) => `${app}: ${role}`).join(', ')}`)
  console.log(`\nOne-time link: ${stack.origin}/console/link#token=${stack.console.addLink(stack.people.owner)}\nIds: ${JSON.stringify(stack.ids)}`)
  process.once('SIGINT', () => void stack.stop())
  process.once('SIGTERM', () => void stack.stop())
}
