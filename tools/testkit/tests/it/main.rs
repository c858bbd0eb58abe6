//! The fakes used through an independent client (hyper over h2 and rustls): each rule is violated once, and
//! each kind of failure is caused once.

#![allow(clippy::unwrap_used)] // helpers are tests too: a missing value fails the test

mod apns;
mod channels;
mod client;
mod control;
mod fcm;
mod sign;
mod trouble;
mod webpush;
