//! A group of accepted notifications: [`read`] reads everything that the group depends on in one round trip, `plan`
//! decides without the database, and `writing` writes the result with a fixed number of statements, for any number of
//! notifications and targets.

mod broadcast;
mod form;
mod inbox;
mod item;
mod plan;
mod push;
mod ranks;
mod reading;
mod topic;
mod writing;

pub(super) use form::{Expanded, Form};
pub(super) use inbox::{INSERT as INBOX_INSERT, InboxRemoval, Inboxes, LOCK as INBOX_LOCK, MAKE_ROOM};
pub(super) use plan::{Answer, NotificationSource, Rows, plan};
pub(super) use ranks::Ranks;
pub(super) use reading::{END_LEASES, Found, read, statements as reading_statements};
pub(super) use writing::{Mark, NOTED, make_room, statements as writing_statements};
