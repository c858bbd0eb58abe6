//! A reader beside the sinks, open only while someone looks: the live tail of the console.
//!
//! The collector passes it every record, on its own thread and in the order of each emitting thread. A tap makes emitting
//! cost what it costs with a sink, so it opens with its first viewer and closes with the last.

use crate::event::Record;

pub trait Tap: Send + Sync {
    /// Takes `records`. `lost`: how many others were lost since the last call, because rings were full. Must not wait.
    fn read(&self, records: &mut Vec<Record>, lost: u64);
}
