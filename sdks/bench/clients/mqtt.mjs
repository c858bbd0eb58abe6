import mqtt from 'mqtt'

export const subscribe = (qos) => ({ url }, received) => {
  const client = mqtt.connect(`${url}/mqtt${qos}`)
  const decoder = new TextDecoder()
  client.on('message', (_, payload) => received(JSON.parse(decoder.decode(payload))))
  client.on('connect', () => client.subscribe('news', { qos }))
  return client
}
export default subscribe(0)
