//! The contract of the cluster, run against every implementation, and faults of Redis: restarts, wipes, failovers,
//! pauses, broken connections. Real servers, started on free ports in temporary folders and stopped by their pid.

mod access;
mod batches;
mod conformance;
mod engine;
mod fail_over;
mod faults;
mod links;
mod race;
mod recorder;
mod server;
