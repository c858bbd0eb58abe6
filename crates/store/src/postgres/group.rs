//! A group of accepted notifications: [`read`] reads everything that the group depends on in one round trip, `plan`
//! decides without the database, and `writing` writes the result with a fixed number of statements, for any number of
//! notifications and targets.

mod inbox;
mod plan;
mod push;
mod reading;
mod topic;
mod writing;

pub(super) use plan::{Answer, NotificationSource, Rows, plan};
pub(super) use reading::{read, statements as reading_statements};
pub(super) use writing::{Mark, NOTED, STATEMENTS as WRITING_STATEMENTS, make_room};
