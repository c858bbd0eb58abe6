//! Pools against HTTP servers that others wrote, and against peers whose every frame is scripted: nothing is
//! lost, nothing doubled, no bound exceeded, whatever the other end does.

mod answers;
mod authorization;
mod bounds;
mod client;
mod frames;
mod loss;
mod order;
mod scripted;
mod server;
mod strangers;
