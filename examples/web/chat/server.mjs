/**
 * A chat. The backend keeps the messages and numbers them; Noroshi brings each to the people who are there. A page that missed
 * more than a topic keeps reads the rest from the backend.
 */

import { HttpError, noroshi, serve, text } from '../site.mjs'

const HISTORY_MAX = 1_000
const ROOM = 'chat/lobby'

const messages = []
let count = 0
/** One after the other, so that the topic has the order of the history. */
let last = Promise.resolve()

serve({
  folder: new URL('.', import.meta.url),
  port: Number(process.env.PORT ?? 3000),
  routes: {
    'GET /messages'(_, body, query) {
      const after = Number(query.get('after') ?? 0)
      if (!Number.isSafeInteger(after) || after < 0) throw new HttpError(400, 'after: the number of a message')
      return { messages: messages.filter(({ n }) => n > after), first: messages[0]?.n ?? 1 }
    },
    async 'POST /messages'({ user }, body) {
      const message = { n: ++count, from: user, text: text(body, 'text', 2_000), at: new Date().toISOString() }
      messages.push(message)
      if (messages.length > HISTORY_MAX) messages.shift()
      const published = last.then(() => noroshi.publish({ to: { topic: ROOM }, data: message, ttl: '1h' }))
      last = published.catch(() => {})
      await published
      return { n: message.n }
    },
  },
})
