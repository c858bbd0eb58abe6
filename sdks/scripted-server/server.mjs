#!/usr/bin/env node
/**
 * Plays the service's part of the test vectors (../vectors) over real sockets, for libraries of every language.
 *
 *   node sdks/scripted-server/server.mjs [PORT]      prints one line: the address
 *
 * A library's test runner reads the vectors itself: it calls the library, moves its clock, and compares what the library
 * reports. Over HTTP it tells this server what to do:
 *
 *   POST /control/reset              ends every connection, forgets everything observed
 *   POST /control/step    a step     accept, refuse, send, send_many, end or reply; answers when the peer has had time to process it
 *   POST /control/expect  [...]      what the library must have done on the wire since the last call, within five seconds;
 *                                    200, or 409 with {expected, observed}
 */

import { listen } from './scripted.mjs'

console.log((await listen(Number(process.argv[2] ?? 0))).url)
