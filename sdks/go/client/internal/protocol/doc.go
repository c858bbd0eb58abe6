// Package protocol is the device's part of the protocol noroshi.v1: connection, subscriptions, recovery, acknowledgement, tokens and
// reports. The rules are in sdks/CONTRACT.md, whose numbers are in the comments.
//
// The package does no input or output, starts no goroutine and reads no clock. A caller tells a [Machine] what happened and at what
// time, and then carries out its effects:
//
//	machine.Connect(now)
//	for _, effect := range machine.Effects() { … }
//	at, ok := machine.Timeout() // when to call Advance
package protocol
