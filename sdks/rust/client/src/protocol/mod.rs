//! The device's part of the protocol `noroshi.v1`: connection, subscriptions, recovery, acknowledgement, tokens and reports. The rules
//! are in sdks/CONTRACT.md, whose numbers are in the comments.
//!
//! There is no input or output here, no task and no clock. A caller tells a [`Machine`] what happened and at what time, and then
//! carries out its effects:
//!
//! ```text
//! machine.connect(now);
//! for effect in machine.effects() { … }
//! machine.timeout() // when to call advance
//! ```

mod backoff;
mod close;
mod connection;
mod effect;
mod incoming;
mod inflow;
mod machine;
mod outbox;
mod outgoing;
mod request;
mod set;
mod timer;
mod token;

pub(crate) use effect::{Dial, Effect, Ended, Outcome, Request, Response};
pub(crate) use inflow::QUEUE_MAX;
pub use machine::Acknowledge;
pub(crate) use machine::{Config, Machine, Moment};
pub(crate) use request::Call;

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::presence;
