//! Sessions: who is connected, which topics each hears, how a log-in becomes a session, what it has to catch up with.

pub(crate) mod catch_up;
pub(crate) mod gate;
pub(crate) mod login;
pub(crate) mod operation;
pub(crate) mod outcome;
pub(crate) mod parking;
pub(crate) mod permission;
pub(crate) mod reads;
pub(crate) mod recheck;
pub(crate) mod registry;
pub(crate) mod renewal;
pub(crate) mod stamp;
pub(crate) mod topic_index;
pub(crate) mod verification;
pub(crate) mod wildcard;
