/**
 * A client of Amazon SQS: queues and messages over its JSON protocol. ElasticMQ requires no signature.
 *
 *   const sqs = new Sqs(process.env.NOROSHI_SQS_ENDPOINT)
 *   const url = await sqs.create('in'); await sqs.send(url, [{ body: '{}', attributes: { app: 'dev' } }])
 */

import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'

/** A call has at most ten messages. */
const ENTRIES_MAX = 10

export class Sqs {
  constructor(endpoint) {
    this.endpoint = endpoint
  }

  async call(action, input) {
    const response = await fetch(this.endpoint, {
      method: 'POST',
      headers: { 'content-type': 'application/x-amz-json-1.0', 'x-amz-target': `AmazonSQS.${action}` },
      body: JSON.stringify(input),
    })
    const text = await response.text()
    assert.ok(response.ok, `${action} -> ${response.status} ${text}`)
    return text === '' ? {} : JSON.parse(text)
  }

  /** Creates a queue for this test; returns its URL. */
  async create(prefix, attributes = {}) {
    const name = `${prefix}-${randomBytes(4).toString('hex')}`
    return (await this.call('CreateQueue', { QueueName: name, Attributes: attributes })).QueueUrl
  }

  /** `messages` are `{ body, attributes }`; returns their ids. */
  async send(url, messages) {
    const ids = []
    for (let from = 0; from < messages.length; from += ENTRIES_MAX) {
      const entry = ({ body, attributes = {} }, at) => ({
        Id: String(at),
        MessageBody: body,
        MessageAttributes: Object.fromEntries(
          Object.entries(attributes).map(([name, StringValue]) => [name, { DataType: 'String', StringValue }]),
        ),
      })
      const Entries = messages.slice(from, from + ENTRIES_MAX).map(entry)
      const { Successful, Failed = [] } = await this.call('SendMessageBatch', { QueueUrl: url, Entries })
      assert.deepEqual(Failed, [])
      ids.push(...Successful.map(({ MessageId }) => MessageId))
    }
    return ids
  }

  /** Receives messages, invisible to others for this number of seconds; does not delete them. */
  async receive(url, visibilitySeconds = 30) {
    const { Messages = [] } = await this.call('ReceiveMessage', {
      QueueUrl: url,
      MaxNumberOfMessages: ENTRIES_MAX,
      VisibilityTimeout: visibilitySeconds,
      MessageAttributeNames: ['All'],
      AttributeNames: ['All'],
    })
    return Messages.map(({ MessageId, Body, MessageAttributes = {} }) => ({
      id: MessageId,
      body: Body,
      attributes: Object.fromEntries(Object.entries(MessageAttributes).map(([name, { StringValue }]) => [name, StringValue])),
    }))
  }

  /** The number of messages, visible and in flight. */
  async depth(url) {
    const names = ['ApproximateNumberOfMessages', 'ApproximateNumberOfMessagesNotVisible', 'ApproximateNumberOfMessagesDelayed']
    const { Attributes } = await this.call('GetQueueAttributes', { QueueUrl: url, AttributeNames: names })
    return names.reduce((sum, name) => sum + Number(Attributes[name] ?? 0), 0)
  }
}
