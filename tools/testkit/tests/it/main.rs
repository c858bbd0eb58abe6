//! The fakes asked by a client that other people wrote (hyper over h2 and rustls): each rule is broken once, and
//! each kind of trouble is caused once.

#![allow(clippy::unwrap_used)] // helpers are tests too: what is not there fails the test

mod apns;
mod client;
mod control;
mod fcm;
mod sign;
mod trouble;
mod webpush;
