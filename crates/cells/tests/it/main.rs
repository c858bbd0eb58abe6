//! A front with three real cells: their APIs on loopback, each with its own store, which tests can kill and restart.
//! The front's routers are called directly.

mod moving;
mod publishing;
mod quotas;
mod residing;
mod routes;
mod tracing;
mod trouble;
mod world;
