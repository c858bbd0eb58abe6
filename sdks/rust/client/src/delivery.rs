//! A message and the application's answer to it.

use std::fmt;
use std::ops::Deref;
use std::sync::Weak;

use crate::error::BoxError;
use crate::message::Message;
use crate::shared::Shared;

/// A message that the application handles now.
///
/// Say what became of it with [`handled`](Self::handled), [`failed`](Self::failed) or [`finish`](Self::finish). A delivery that is
/// dropped counts as failed. A message that failed arrives again in the next session.
#[must_use = "a delivery that is dropped counts as failed"]
pub struct Delivery {
    message: Message,
    shared: Weak<Shared>,
    is_settled: bool,
}

impl Delivery {
    pub(crate) fn new(message: Message, shared: Weak<Shared>) -> Self {
        Self { message, shared, is_settled: false }
    }

    /// The application has finished its work on the message. Unless the client [acknowledges](crate::Acknowledge) otherwise, this
    /// acknowledges it.
    pub fn handled(self) {
        self.finish(Ok::<(), BoxError>(()));
    }

    /// The application could not handle the message.
    pub fn failed(self, cause: impl Into<BoxError>) {
        self.finish(Err::<(), BoxError>(cause.into()));
    }

    /// [`handled`](Self::handled) or [`failed`](Self::failed).
    pub fn finish<T, E: Into<BoxError>>(mut self, result: Result<T, E>) {
        self.settle(result.map(drop).map_err(Into::into));
    }

    /// A copy of the message, to keep it after the delivery.
    pub fn message(&self) -> &Message {
        &self.message
    }

    fn settle(&mut self, result: Result<(), BoxError>) {
        self.is_settled = true;
        if let Some(shared) = self.shared.upgrade() {
            shared.settled(result);
        }
    }
}

impl Deref for Delivery {
    type Target = Message;

    fn deref(&self) -> &Message {
        &self.message
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if !self.is_settled {
            self.settle(Err("the application dropped it".into()));
        }
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.message.fmt(f)
    }
}
