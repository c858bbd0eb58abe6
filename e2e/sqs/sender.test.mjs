/** The batch queue on Amazon SQS with dying senders. */

import { senderKilled } from '../lib/sender.mjs'

senderKilled('handed out over SQS', {
  'push.queue': 'sqs',
  'sqs.endpoint': process.env.NOROSHI_SQS_ENDPOINT,
  'sqs.region': 'elasticmq',
  'sqs.create_queues': true,
})
