//! The cluster's contract, run against every implementation, and what happens to Redis in its life: restarts, wipes,
//! fail-overs, pauses, cut connections. Real servers, started on free ports in temporary folders and ended by their pid.

mod access;
mod batches;
mod conformance;
mod engine;
mod fail_over;
mod faults;
mod heard;
mod race;
mod server;
