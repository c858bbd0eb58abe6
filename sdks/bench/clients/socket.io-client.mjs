import { io } from 'socket.io-client'

export default ({ url }, received) => {
  const socket = io(url, { transports: ['websocket'] })
  socket.on('message', received)
  return socket
}
