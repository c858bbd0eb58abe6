//! Text frames of a server that other people wrote. Messages are known by their data alone, also several of
//! them in one frame.

use super::{Turn, websocket};
use crate::device::{Ended, Stage};
use crate::dialect::Frames;

pub(super) fn hear(text: &str, frames: &Frames, turn: &mut Turn<'_>) -> Result<(), Ended> {
    let stamp = turn.stamp;
    for stamp_ns in stamp.find_all(text.as_bytes()) {
        turn.message(Some(stamp_ns), text.len());
    }
    if *turn.stage == Stage::LoggingIn && frames.is_ready(text) {
        *turn.stage = Stage::Ready;
    }
    if let Some(reply) = frames.answer(text) {
        websocket::push_text(turn.out, reply.as_bytes());
    }
    Ok(())
}
