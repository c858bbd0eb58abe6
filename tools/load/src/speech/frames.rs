//! Text frames of a foreign server. Messages are recognized by their data, even several in one frame.

use super::Turn;
use super::text_frame::push_text;
use crate::connection::{Ended, Stage};
use crate::dialect::Frames;

pub(super) fn handle_bytes(text: &str, frames: &Frames, turn: &mut Turn<'_>) -> Result<(), Ended> {
    let stamp = turn.stamp;
    for stamp_ns in stamp.find_all(text.as_bytes()) {
        turn.message(Some(stamp_ns), text.len());
    }
    if *turn.stage == Stage::LoggingIn && frames.is_ready(text) {
        *turn.stage = Stage::Ready;
    }
    if let Some(reply) = frames.answer(text) {
        push_text(turn.out, reply.as_bytes());
    }
    Ok(())
}
