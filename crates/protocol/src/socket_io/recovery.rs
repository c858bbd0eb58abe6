//! Connection state recovery (socket.io documentation, "Connection state recovery"): a client sends its `pid`
//! again when it reconnects, together with the offset, the last string argument of an event. Our offset
//! contains the notification id and its position in its topic, so it is valid on every node and after a
//! restart.
//!
//! Client libraries store offsets only of events without an ack id, so a connection uses one of both
//! ([`super::Variant`]).

use std::fmt;

use noroshi_types::{Epoch, Message, NotificationId, Position};

/// A UUID, with room for ids of other schemes.
const PID_BYTES_MAX: usize = 64;

/// `<notification id>`, or `<notification id>.<epoch>.<offset>` for a topic's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offset {
    pub id: NotificationId,
    pub position: Option<Position>,
}

impl Offset {
    pub fn of(message: &Message) -> Self {
        Self { id: message.id, position: message.topic.as_ref().map(|place| place.position) }
    }

    /// `None` if it is not ours: the client may have been connected to another service before.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        // Only the hyphenated form, in which ids are issued.
        let id = parts.next().filter(|id| id.len() == 36).and_then(|id| NotificationId::parse(id).ok())?;
        let position = match (parts.next(), parts.next()) {
            (None, None) => None,
            (Some(epoch), Some(offset)) => {
                let digits = !offset.is_empty() && offset.bytes().all(|byte| byte.is_ascii_digit());
                let offset = digits.then(|| offset.parse().ok()).flatten()?;
                Some(Position { epoch: Epoch::parse(epoch).ok()?, offset })
            }
            _ => return None,
        };
        parts.next().is_none().then_some(Self { id, position })
    }
}

impl fmt::Display for Offset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.position {
            Some(position) => write!(f, "{}.{}.{}", self.id, position.epoch, position.offset),
            None => self.id.fmt(f),
        }
    }
}

/// Whether it can be one of our `pid`s, which are printed into JSON and logs unescaped.
pub(super) fn is_pid(text: &str) -> bool {
    (1..=PID_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    #[test]
    fn offset_has_one_text_form() {
        let id = NotificationId::parse(ID).unwrap();
        let position = Position { epoch: Epoch(42), offset: u64::MAX };
        for (offset, text) in [
            (Offset { id, position: None }, ID.to_owned()),
            (Offset { id, position: Some(position) }, format!("{ID}.0000002a.18446744073709551615")),
        ] {
            assert_eq!((offset.to_string(), Offset::parse(&text)), (text.clone(), Some(offset)));
        }
        let simple = ID.replace('-', "");
        for strange in ["", "x", &simple, &format!("{ID}."), &format!("{ID}.0000002a"), &format!("{ID}.2a.1")]
        {
            assert_eq!(Offset::parse(strange), None, "{strange}");
        }
        for end in [".0000002a.", ".0000002a.+1", ".0000002a.1.", ".0000002a.18446744073709551616"] {
            assert_eq!(Offset::parse(&format!("{ID}{end}")), None, "{end}");
        }
    }

    #[test]
    fn pid_needs_no_escaping() {
        assert!(is_pid("aB_-9") && is_pid(&"x".repeat(64)));
        for strange in ["", "a b", "é", "\"", &"x".repeat(65)] {
            assert!(!is_pid(strange), "{strange}");
        }
    }
}
