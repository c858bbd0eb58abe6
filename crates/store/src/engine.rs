//! Everything that the engines share: how rows map to values, codes and limits, and what a call does apart from reading
//! and writing rows. Both engines keep tables with the same names and columns.
//!
//! - [`record`] reads columns; [`session`] runs statements whose text is the same for both engines.
//! - Functions for the rows of `calls` that say `shared` are written once, on a `Session`.
//! - Everything else here is a mapper or a decision.
//!
//! Nothing here opens a database, takes a lock or knows how an engine schedules its work.

pub(crate) mod accept;
pub(crate) mod ack;
pub(crate) mod activity;
pub(crate) mod app;
pub(crate) mod audience;
pub(crate) mod audit;
pub(crate) mod backlog;
pub(crate) mod broadcast;
pub(crate) mod campaign;
pub(crate) mod cancel;
pub(crate) mod cells;
pub(crate) mod channel;
pub(crate) mod clean_up;
pub(crate) mod credential;
pub(crate) mod definition;
pub(crate) mod device;
pub(crate) mod device_list;
pub(crate) mod device_search;
pub(crate) mod device_seen;
pub(crate) mod draft;
mod draft_row;
pub(crate) mod endpoint;
pub(crate) mod expansion;
pub(crate) mod inbox;
pub(crate) mod item;
pub(crate) mod listing;
pub(crate) mod login;
pub(crate) mod lookup;
pub(crate) mod named;
pub(crate) mod notification;
pub(crate) mod opened;
pub(crate) mod outcome;
pub(crate) mod person;
pub(crate) mod person_session;
pub(crate) mod preferences;
pub(crate) mod purge;
pub(crate) mod push;
pub(crate) mod push_record;
pub(crate) mod push_token;
pub(crate) mod record;
pub(crate) mod series;
pub(crate) mod session;
pub(crate) mod share;
pub(crate) mod ticket;
pub(crate) mod topic;
pub(crate) mod trace;
pub(crate) mod unused_topic;
pub(crate) mod usage;
