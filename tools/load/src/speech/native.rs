//! Noroshi's own protocol: a JSON object in each text frame. The same objects come as server-sent events.

use noroshi_protocol::native::{ServerFrame, parse_server_frame};

use super::{Turn, websocket};
use crate::device::{Ended, Stage};

pub(super) const PATH: &str = "/v1/connect";

pub(super) fn hear(text: &str, turn: &mut Turn<'_>) -> Result<(), Ended> {
    if text.starts_with(r#"{"t":"msg""#) {
        let stamp_ns = turn.stamp.find(text.as_bytes());
        turn.message(stamp_ns, text.len());
        if push_ack(turn.acks, text) {
            turn.seen.stored(stamp_ns);
        }
        return Ok(());
    }
    match said(text, *turn.stage)? {
        Said::LoggedIn => *turn.stage = subscribe(turn.topic, turn.out),
        Said::Subscribed => *turn.stage = Stage::Ready,
        Said::Nothing => {}
    }
    Ok(())
}

/// Acks what came in this turn, with one frame.
pub(super) fn push_acks(turn: &mut Turn<'_>) {
    if !turn.acks.is_empty() {
        let ack = [br#"{"t":"ack","ids":["#, turn.acks.as_slice(), b"]}"].concat();
        websocket::push_text(turn.out, &ack);
        turn.acks.clear();
    }
}

/// What an object that is no message changes.
pub(super) enum Said {
    LoggedIn,
    Subscribed,
    Nothing,
}

pub(super) fn said(text: &str, stage: Stage) -> Result<Said, Ended> {
    match parse_server_frame(text) {
        Ok(ServerFrame::Ready { .. }) if stage == Stage::LoggingIn => Ok(Said::LoggedIn),
        Ok(ServerFrame::Pong) if stage == Stage::Subscribing => Ok(Said::Subscribed),
        Ok(ServerFrame::Error { code, message }) => {
            Err(Ended::lasting(format!("error frame {code}: {message}")))
        }
        Ok(ServerFrame::Close { reason, reconnect, after_ms }) => {
            let reason = format!("close frame: {reason}");
            Err(Ended { reason, retry: reconnect, after_ms: Some(after_ms) })
        }
        Ok(_) => Ok(Said::Nothing),
        Err(error) => Err(Ended::lasting(format!("unexpected frame: {error}"))),
    }
}

/// Subscribes after log-in, if there is a topic; returns what is awaited next.
fn subscribe(topic: Option<&str>, out: &mut Vec<u8>) -> Stage {
    let Some(topic) = topic else { return Stage::Ready };
    let frame = serde_json::json!({"t": "sub", "topics": [topic]}).to_string();
    websocket::push_text(out, frame.as_bytes());
    websocket::push_text(out, br#"{"t":"ping"}"#);
    Stage::Subscribing
}

/// Adds the id of a message that wants an ack; false for others. The flag stands behind `data`, near the end.
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
