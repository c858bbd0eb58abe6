//! Live tails as a node has them: with the event log, a store, and other nodes.

mod bounds;
mod cluster;
mod tenancy;
mod world;
