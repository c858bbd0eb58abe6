import { Centrifuge } from 'centrifuge'

export default ({ url, WebSocket }, received) => {
  const centrifuge = new Centrifuge(`${url}/centrifuge`, WebSocket ? { websocket: WebSocket } : {})
  const subscription = centrifuge.newSubscription('news')
  subscription.on('publication', ({ data }) => received(data))
  subscription.subscribe()
  centrifuge.connect()
  return centrifuge
}
