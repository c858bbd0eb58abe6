//! Noroshi's native protocol: a JSON object per text frame. Server-sent events contain the same objects.

use noroshi_protocol::native::{ServerFrame, parse_server_frame};

use super::{Turn, push_text};
use crate::connection::{Ended, Stage};

pub(super) const PATH: &str = "/v1/connect";

pub(super) fn handle_bytes(text: &str, turn: &mut Turn<'_>) -> Result<(), Ended> {
    if text.starts_with(r#"{"t":"msg""#) {
        let stamp_ns = turn.stamp.find(text.as_bytes());
        turn.message(stamp_ns, text.len());
        if push_ack(turn.acks, text) {
            turn.seen.stored(stamp_ns);
        }
        return Ok(());
    }
    match effect(text, *turn.stage)? {
        Effect::LoggedIn => *turn.stage = subscribe(turn.topic, turn.out),
        Effect::Subscribed => *turn.stage = Stage::Ready,
        Effect::Nothing => {}
    }
    Ok(())
}

/// Acks the messages of this turn with one frame, unless the device holds them.
pub(super) fn push_turn_acks(turn: &mut Turn<'_>) {
    if !turn.holds_acks {
        push_acks(turn.acks, turn.out);
    }
}

/// Acks all of `acks` with one frame.
pub(crate) fn push_acks(acks: &mut Vec<u8>, out: &mut Vec<u8>) {
    if !acks.is_empty() {
        let ack = [br#"{"t":"ack","ids":["#, acks.as_slice(), b"]}"].concat();
        push_text(out, &ack);
        acks.clear();
    }
}

/// The effect of an object that is not a message.
pub(super) enum Effect {
    LoggedIn,
    Subscribed,
    Nothing,
}

pub(super) fn effect(text: &str, stage: Stage) -> Result<Effect, Ended> {
    match parse_server_frame(text) {
        Ok(ServerFrame::Ready { .. }) if stage == Stage::LoggingIn => Ok(Effect::LoggedIn),
        Ok(ServerFrame::Pong) if stage == Stage::Subscribing => Ok(Effect::Subscribed),
        Ok(ServerFrame::Error { code, message }) => {
            Err(Ended::permanent(format!("error frame {code}: {message}")))
        }
        Ok(ServerFrame::Close { reason, reconnect, after_ms }) => {
            let reason = format!("close frame: {reason}");
            Err(Ended { reason, retry: reconnect, after_ms: Some(after_ms) })
        }
        Ok(_) => Ok(Effect::Nothing),
        Err(error) => Err(Ended::permanent(format!("unexpected frame: {error}"))),
    }
}

/// Subscribes after the log-in, if there is a topic; returns the next stage.
fn subscribe(topic: Option<&str>, out: &mut Vec<u8>) -> Stage {
    let Some(topic) = topic else { return Stage::Ready };
    let frame = serde_json::json!({"t": "sub", "topics": [topic]}).to_string();
    push_text(out, frame.as_bytes());
    push_text(out, br#"{"t":"ping"}"#);
    Stage::Subscribing
}

/// Appends the id of a message that wants an ack; returns false for others. The flag follows `data`, near the
/// end.
fn push_ack(acks: &mut Vec<u8>, text: &str) -> bool {
    let tail = &text.as_bytes()[text.len().saturating_sub(64)..];
    if memchr::memmem::find(tail, br#""ack":true"#).is_none() {
        return false;
    }
    if let Ok(ServerFrame::Msg(message)) = parse_server_frame(text) {
        if !acks.is_empty() {
            acks.push(b',');
        }
        acks.push(b'"');
        acks.extend_from_slice(message.id.as_bytes());
        acks.push(b'"');
    }
    true
}
