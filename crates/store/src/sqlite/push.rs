//! The push queue: `take` and `claim` (leases, and which devices still need a push), `finish` with `token`,
//! `walk`, and `recipient`.
//!
//! The queue's index for taking begins with lane, app, service and campaign. One seek finds the oldest row of each such
//! *group*. `take` reads the first row of every group and the rows it takes, but no rows that are busy, held, paused or
//! due later.

mod claim;
pub(crate) mod finish;
pub(crate) mod recipient;
pub(crate) mod take;
pub(crate) mod token;
pub(crate) mod walk;
