/** Senders that die with pushes in flight. With Amazon SQS as the queue: `sqs/sender.test.mjs`. */

import { senderKilled } from '../lib/sender.mjs'

senderKilled('taken from the store', { 'push.queue': 'store' })
senderKilled('handed out over Redis', { 'push.queue': 'redis' })
