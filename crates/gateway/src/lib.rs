//! Listeners, transports, shards and the connection loop
