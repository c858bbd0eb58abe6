//! The push queue: `take` and `claim` (leases, and which devices still need a push), `finish` with `token`,
//! `walk`, and `recipient`. [`super::group`] writes the work of accepted requests.
//!
//! Several nodes take and finish at once. What they lock is described in `claim` (acknowledgements and claims),
//! [`super::push_queue`] (rows), `take` (leases) and [`super::campaign_row`] (the end of a campaign).

pub(super) mod claim;
pub(crate) mod finish;
pub(crate) mod recipient;
pub(crate) mod take;
pub(crate) mod token;
pub(crate) mod walk;
