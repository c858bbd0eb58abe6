export { default } from './noroshi.mjs'
