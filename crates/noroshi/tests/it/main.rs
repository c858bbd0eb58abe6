//! The built binary as people and scripts use it: the server's start and end, and every command against
//! a running node. Each test has a node of its own on ports the system chose.

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
