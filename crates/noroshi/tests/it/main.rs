//! The built binary as people and scripts use it: start and stop of the server, and every command against
//! a running node. Each test has its own node on ports chosen by the system.

mod bench;
mod command;
mod dev_push;
mod doctor;
mod documentation;
mod drain;
mod events;
mod node;
mod profile;
mod push;
mod realtime;
mod serve;
mod tls;
