//! A server that goes away, and nodes that stop in the middle.
