//! Requests and reports of other nodes until the next flush. Their task also delivers messages, so it waits for nothing here
//! but the lock of a list.

use bytes::Bytes;
use noroshi_cluster::Epoch;
use parking_lot::Mutex;

use crate::report::{Ask, Report};

/// With 32 KiB each, 16 MiB. 16 viewers and ten other nodes send 160 between two flushes.
const WAITING_MAX: usize = 512;

#[derive(Default)]
pub(crate) struct Inbox(Mutex<Vec<(Epoch, Letter)>>);

enum Letter {
    Ask(Bytes),
    Report(Bytes),
}

/// A letter that could be read.
pub(crate) enum Message {
    Ask(Ask),
    Report(Box<Report>),
}

impl Inbox {
    pub(crate) fn ask(&self, by: Epoch, ask: Bytes) {
        self.add(by, Letter::Ask(ask));
    }

    pub(crate) fn report(&self, by: Epoch, report: Bytes) {
        self.add(by, Letter::Report(report));
    }

    /// Without room it is dropped: a request is repeated, and a tail states that a report is missing.
    fn add(&self, by: Epoch, letter: Letter) {
        let mut waiting = self.0.lock();
        if waiting.len() < WAITING_MAX {
            waiting.push((by, letter));
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// In their order.
    pub(crate) fn take(&self) -> Vec<(Epoch, Message)> {
        let letters = std::mem::take(&mut *self.0.lock());
        let read = |(by, letter)| {
            let message = match letter {
                Letter::Ask(bytes) => Message::Ask(Ask::decode(&bytes)?),
                Letter::Report(bytes) => Message::Report(Box::new(Report::decode(&bytes)?)),
            };
            Some((by, message))
        };
        letters.into_iter().filter_map(read).collect()
    }
}
