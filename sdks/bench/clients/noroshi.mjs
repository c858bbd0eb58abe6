import { Connection } from '@noroshi/client'

export default ({ url, WebSocket }, received) => {
  const connection = new Connection({ url, getToken: () => 'token', ...(WebSocket && { runtime: { WebSocket } }) })
  connection.on('message', ({ data }) => received(data))
  connection.subscribe('news')
  connection.connect()
  return connection
}
