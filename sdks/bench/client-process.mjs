/** One library in a process of its own. Prints CPU seconds and heap as JSON. Arguments: library, address, messages. */

import { WebSocket } from 'ws'

const [name, url, total] = process.argv.slice(2)
const heap = () => {
  for (let n = 0; n < 3; n++) global.gc()
  return process.memoryUsage().heapUsed
}
const { default: start } = await import(`./clients/${name}.mjs`)
const before = heap()
let count = 0
let checksum = 0
let begun
const ended = new Promise((resolve) => {
  const address = name.startsWith('mqtt') || name === 'centrifuge' ? url.replace('http', 'ws') : url
  globalThis.client = start({ url: address, WebSocket }, ({ n }) => {
    checksum += n
    // The first thousand messages are for the compiler.
    if (++count === 1_000) begun = process.cpuUsage()
    if (count === Number(total)) resolve()
  })
})
await ended
const { user, system } = process.cpuUsage(begun)
if (checksum !== (count * (count + 1)) / 2) throw new Error('messages are missing')
await new Promise((resolve) => setTimeout(resolve, 200))
console.log(JSON.stringify({ cpuMs: (user + system) / 1_000 / ((count - 1_000) / 10_000), heapBytes: heap() - before }))
process.exit()
