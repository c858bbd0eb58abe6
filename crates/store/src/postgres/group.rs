//! One group of accepted notifications, from what it names to rows: [`read`] asks for everything the group
//! needs to know in one round trip, `plan` decides without the database, and `writing` writes it with a fixed
//! number of statements, whatever the number of notifications and targets.

mod inbox;
mod plan;
mod push;
mod reading;
mod topic;
mod writing;

pub(super) use plan::{Answer, Kept, Rows, plan};
pub(super) use reading::{read, statements as reading_statements};
pub(super) use writing::{Mark, NOTED, STATEMENTS as WRITING_STATEMENTS, make_room};
