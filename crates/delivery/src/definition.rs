//! What an app defines for its users besides notifications: experiments and maintenance notices.
//!
//! Pure: the request, its rules, its stored form, and what it means for one device at one moment. [`crate::first_call`]
//! keeps live definitions in memory.

pub mod experiment;
pub mod notice;

pub use experiment::{Experiment, ExperimentVariant, Group};
pub use notice::{Notice, NoticeState};
