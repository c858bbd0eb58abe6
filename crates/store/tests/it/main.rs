//! The store from outside: the conformance suite on every implementation, and what holds for one
//! implementation alone.

mod conformance;
mod postgres;
mod sqlite;
