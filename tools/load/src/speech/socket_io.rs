//! Socket.IO 5 over Engine.IO 4, using WebSocket only: packets are distinguished by their first digits. It
//! connects once the transport is open, as the library does, passes its topic in `auth`, and acknowledges
//! messages that request it.

use noroshi_protocol::engine_io::Packet;

use super::native::effect;
use super::{Login, Turn, push_text};
use crate::connection::{Ended, Stage};

pub(super) const PATH: &str = "/socket.io/?EIO=4&transport=websocket";
/// The text after the type and the ack id.
const NOTIFICATION: &str = r#"["notification","#;
const CLOSE: &str = r#"["close",{"#;

/// CONNECT of the main namespace.
pub(super) fn connect(login: Login<'_>) -> String {
    let auth = match login.topic {
        Some(topic) => serde_json::json!({"token": login.token(), "topics": [topic]}),
        None => serde_json::json!({"token": login.token()}),
    };
    format!("40{auth}")
}

/// `hello` is the frame that connects.
pub(super) fn handle_bytes(text: &str, hello: &mut Vec<u8>, turn: &mut Turn<'_>) -> Result<(), Ended> {
    // Messages first: everything else is rare.
    if let Some(event) = text.strip_prefix("42") {
        return handle_event(event, turn);
    }
    match Packet::from_text(text) {
        Ok(Packet::Open(_)) => turn.out.append(hello),
        Ok(Packet::Ping(payload)) => push_text(turn.out, format!("3{payload}").as_bytes()),
        Ok(Packet::Close) => return Err(Ended::temporary("closed by the server")),
        Ok(_) if text.starts_with("40") && *turn.stage == Stage::LoggingIn => *turn.stage = Stage::Ready,
        Ok(_) if text.starts_with("41") => return Err(Ended::permanent("disconnected by the server")),
        Ok(_) if text.starts_with("44") => {
            return Err(Ended::permanent(format!("connect error {}", &text[2..])));
        }
        Ok(_) => {}
        Err(error) => return Err(Ended::permanent(format!("unexpected packet: {error}"))),
    }
    Ok(())
}

fn handle_event(event: &str, turn: &mut Turn<'_>) -> Result<(), Ended> {
    let (ack_id, arguments) = event.split_at(event.bytes().take_while(u8::is_ascii_digit).count());
    if arguments.starts_with(NOTIFICATION) {
        let stamp_ns = turn.stamp.find(arguments.as_bytes());
        turn.message(stamp_ns, arguments.len());
        if !ack_id.is_empty() {
            push_text(turn.out, format!("43{ack_id}[]").as_bytes());
            turn.seen.stored(stamp_ns);
        }
        return Ok(());
    }
    // The native object without its type.
    if let Some(fields) = arguments.strip_prefix(CLOSE).and_then(|rest| rest.strip_suffix(']')) {
        return effect(&format!(r#"{{"t":"close",{fields}"#), *turn.stage).map(drop);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_is_passed_at_log_in() {
        let login = Login { host: "h", name: "d", secret: Some("a.b-c_"), topic: Some("t") };
        assert_eq!(connect(login), r#"40{"token":"a.b-c_","topics":["t"]}"#);
        assert_eq!(connect(Login { topic: None, ..login }), r#"40{"token":"a.b-c_"}"#);
    }
}
