//! Test support: a running node, HTTP and WebSocket clients
