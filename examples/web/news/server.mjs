/**
 * A newspaper. A headline goes to everyone who reads along, by a topic, and as an item to the notification centre of each
 * reader, who finds it there on every device until it was read.
 */

import { noroshi, serve, text } from '../site.mjs'

const READERS_MAX = 10_000
/** A request may name 1,000 users. */
const USERS_OF_REQUEST = 1_000

const readers = new Set()
let count = 0

function* batches(title, body) {
  const all = [...readers]
  for (let from = 0; from < all.length; from += USERS_OF_REQUEST) {
    yield { to: { users: all.slice(from, from + USERS_OF_REQUEST) }, notification: { title, body }, item: { category: 'headlines' } }
  }
}

serve({
  folder: new URL('.', import.meta.url),
  port: Number(process.env.PORT ?? 3001),
  signedIn: (user) => readers.size < READERS_MAX && readers.add(user),
  routes: {
    async 'POST /headlines'({ user }, body) {
      const headline = { n: ++count, title: text(body, 'title', 200), by: user }
      await noroshi.publish({ to: { topic: 'news/live' }, data: headline, ttl: '1h' })
      const failed = []
      for await (const { ok, error } of noroshi.publishBatch(batches(headline.title, `By ${user}`))) if (!ok) failed.push(error.code)
      if (failed.length) throw new Error(`not all readers were notified: ${failed}`)
      return { n: headline.n }
    },
  },
})
