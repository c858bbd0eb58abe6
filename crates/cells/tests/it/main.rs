//! A front with three real cells: their APIs on loopback, each with a store of its own, that can be killed and started
//! again. The front's routers are called directly.

mod moving;
mod publishing;
mod quotas;
mod residing;
mod routes;
mod tracing;
mod trouble;
mod world;
