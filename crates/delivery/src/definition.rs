//! What an app defines for its users beside notifications: experiments and maintenance notices.
//!
//! Pure: what is asked for, its rules, how it is kept, and what it means for one device at one moment. Who holds the
//! live ones in memory is [`crate::first_call`].

pub mod experiment;
pub mod notice;

pub use experiment::{Experiment, ExperimentVariant, Group};
pub use notice::{Notice, NoticeState, NoticeText};
