/**
 * A private Apache Kafka from Maven Central: one process that is broker and controller (KRaft), on free ports, with
 * its data in a temporary folder. Stopped by its process id, like every server here (`engines.mjs`).
 *
 *   const kafka = await Broker.start(); await kafka.createTopic('events', { partitions: 3 })
 *   const lines = await kafka.read('events')        // by kafkajs, from the beginning
 */

import { execFile } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'

import { Kafka, logLevel } from 'kafkajs'

import { issueFromAuthority } from './certificate.mjs'
import { Program, temporaryFolder } from './engines.mjs'
import { CACHE, freePort } from './node.mjs'
import { until, within } from './until.mjs'

export const USER = 'noroshi'
export const PASSWORD = 'kafka-password'

const JAVA = ['-Xmx384m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-Dorg.slf4j.simpleLogger.defaultLogLevel=warn']
const CLASSES = ['-cp', join(CACHE, 'kafka', '*')]
/** A Java program must start while other tests run. */
const START_MS = 90_000

const java = (...args) => promisify(execFile)('java', [...JAVA, ...CLASSES, ...args], { timeout: START_MS })

export class Broker {
  static async start() {
    const broker = new Broker()
    broker.folder = temporaryFolder('kafka')
    ;[broker.port, broker.securePort, broker.controllerPort] = [await freePort(), await freePort(), await freePort()]
    const at = (name) => join(broker.folder, name)
    broker.ca = at('ca.pem')
    issueFromAuthority(broker.ca, at('cert.pem'), at('key.pem'))
    writeFileSync(at('both.pem'), readFileSync(at('key.pem'), 'utf8') + readFileSync(at('cert.pem'), 'utf8'))
    const login = 'org.apache.kafka.common.security.scram.ScramLoginModule required;'
    const settings = {
      'process.roles': 'broker,controller',
      'node.id': 1,
      'controller.quorum.voters': `1@127.0.0.1:${broker.controllerPort}`,
      'controller.listener.names': 'CONTROLLER',
      listeners: `PLAIN://127.0.0.1:${broker.port},SECURE://127.0.0.1:${broker.securePort},CONTROLLER://127.0.0.1:${broker.controllerPort}`,
      'advertised.listeners': `PLAIN://127.0.0.1:${broker.port},SECURE://127.0.0.1:${broker.securePort}`,
      'listener.security.protocol.map': 'PLAIN:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT',
      'inter.broker.listener.name': 'PLAIN',
      'listener.name.secure.sasl.enabled.mechanisms': 'SCRAM-SHA-512',
      'listener.name.secure.scram-sha-512.sasl.jaas.config': login,
      'listener.name.secure.ssl.keystore.type': 'PEM',
      'listener.name.secure.ssl.keystore.location': at('both.pem'),
      'log.dirs': at('data'),
      'auto.create.topics.enable': false,
      'offsets.topic.num.partitions': 1,
      'offsets.topic.replication.factor': 1,
      'group.initial.rebalance.delay.ms': 0,
    }
    const properties = at('server.properties')
    writeFileSync(properties, Object.entries(settings).map(([key, value]) => `${key}=${value}\n`).join(''))
    const user = `SCRAM-SHA-512=[name=${USER},password=${PASSWORD}]`
    await java('kafka.tools.StorageTool', 'format', '-t', 'AAAAAAAAAAAAAAAAAAAAAA', '-c', properties, '--add-scram', user)
    broker.program = new Program({
      name: 'Kafka',
      command: 'java',
      args: [...JAVA, ...CLASSES, 'kafka.Kafka', properties],
      log: at('log'),
      deathSignal: 'SIGKILL',
    })
    broker.kafka = new Kafka({ brokers: [`127.0.0.1:${broker.port}`], logLevel: logLevel.NOTHING })
    broker.admin = broker.kafka.admin()
    await broker.up()
    return broker
  }

  get address() {
    return `127.0.0.1:${this.port}`
  }

  get secureAddress() {
    return `127.0.0.1:${this.securePort}`
  }

  async up() {
    this.program.start()
    const answers = () => within('Kafka to answer', this.admin.listTopics(), 5_000).then(() => true, () => false)
    await until('Kafka to be ready', async () => {
      if (!this.program.isRunning) throw new Error(`Kafka ended: ${this.program.log()}`)
      return answers()
    }, START_MS)
  }

  async createTopic(topic, { partitions = 1, settings = {} } = {}) {
    const configEntries = Object.entries(settings).map(([name, value]) => ({ name, value: String(value) }))
    await this.admin.createTopics({ topics: [{ topic, numPartitions: partitions, configEntries }] })
  }

  /** The default quota of all clients: kafkajs has no call for it. */
  async setQuota(setting) {
    const what = ['--alter', '--entity-type', 'clients', '--entity-default', ...setting]
    await java('kafka.admin.ConfigCommand', '--bootstrap-server', this.address, ...what)
  }

  /** All records of the topic, each partition in order: `{ partition, key, value }`. */
  async read(topic) {
    const count = (offsets) => offsets.reduce((sum, { low, high }) => sum + Number(high) - Number(low), 0)
    const held = count(await this.admin.fetchTopicOffsets(topic))
    const consumer = this.kafka.consumer({ groupId: `readers-of-${topic}`, retry: { retries: 20 } })
    const records = []
    await consumer.connect()
    try {
      await consumer.subscribe({ topics: [topic], fromBeginning: true })
      const eachMessage = async ({ partition, message: { key, value } }) => {
        records.push({ partition, key: String(key), value: String(value) })
      }
      await consumer.run({ eachMessage })
      await until(`${held} records of ${topic}`, () => records.length >= held, 120_000)
    } finally {
      await consumer.disconnect()
    }
    return records
  }

  async stop() {
    await this.admin.disconnect().catch(() => {})
    await this.program.kill()
  }
}
