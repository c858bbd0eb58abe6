//! Pools against HTTP servers of other authors, and against peers with scripted frames: no push is lost or duplicated,
//! and no limit is exceeded, whatever the peer does.

mod answers;
mod attempts;
mod authorization;
mod batches;
mod bounds;
mod client;
mod frames;
mod loss;
mod order;
mod scripted;
mod server;
mod strangers;
