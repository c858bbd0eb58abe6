import Pusher from 'pusher-js'

export default ({ url }, received) => {
  const { hostname, port } = new URL(url)
  const options = { cluster: '', wsHost: hostname, wsPort: port, forceTLS: false, disableStats: true, enabledTransports: ['ws'] }
  const pusher = new Pusher('key', options)
  pusher.subscribe('news').bind('message', received)
  return pusher
}
