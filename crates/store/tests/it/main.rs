//! Tests of the store from outside: the conformance suite for every implementation, and tests for single
//! implementations.

mod conformance;
mod postgres;
mod sqlite;
mod statements;
