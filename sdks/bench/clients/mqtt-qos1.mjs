import { subscribe } from './mqtt.mjs'

export default subscribe(1)
