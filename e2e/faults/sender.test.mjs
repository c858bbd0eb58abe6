/** Senders that die with pushes under way. With Amazon SQS between them: `sqs/sender.test.mjs`. */

import { senderKilled } from '../lib/sender.mjs'

senderKilled('taken from the store', { 'push.queue': 'store' })
senderKilled('handed out over Redis', { 'push.queue': 'redis' })
