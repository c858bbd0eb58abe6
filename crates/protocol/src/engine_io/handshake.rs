//! The server's handshake (EIO "Handshake"): the session id, the available upgrades, and the timing
//! parameters for both sides.
//!
//! The session id is the only credential of a poll, so anyone who knows it controls the session. It consists
//! of the number of the owning shard and 104 random bits, and is never shown to others.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The defaults of the JavaScript server. Clients read them from the handshake.
pub const PING_INTERVAL: Duration = Duration::from_secs(25);
pub const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Parameters of all sessions; `maxPayload` is also the limit of a WebSocket message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    pub ping_interval_ms: u64,
    pub ping_timeout_ms: u64,
    /// Limit of one POST body and of one WebSocket message, in bytes.
    pub payload_bytes_max: usize,
    /// Limit of the packets queued for a poll, in bytes.
    pub queue_bytes_max: usize,
    pub queue_packets_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ping_interval_ms: PING_INTERVAL.as_millis() as u64,
            ping_timeout_ms: PING_TIMEOUT.as_millis() as u64,
            payload_bytes_max: noroshi_types::limits::CLIENT_MESSAGE_BYTES,
            queue_bytes_max: noroshi_types::limits::SEND_QUEUE_BYTES,
            // Ten times a full page of a backlog; the entries themselves take 40 KiB.
            queue_packets_max: 1_024,
        }
    }
}

const SID_BYTES: usize = 15;
const SHARD_BYTES: usize = 2;

/// A session's id: 20 characters that need no escaping in a query.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sid([u8; SID_BYTES]);

impl Sid {
    /// `random` must be unpredictable.
    pub fn new(shard: u16, random: [u8; SID_BYTES - SHARD_BYTES]) -> Self {
        let mut bytes = [0; SID_BYTES];
        bytes[..SHARD_BYTES].copy_from_slice(&shard.to_be_bytes());
        bytes[SHARD_BYTES..].copy_from_slice(&random);
        Self(bytes)
    }

    /// Returns `None` for a text that cannot be a session id.
    pub fn parse(text: &str) -> Option<Self> {
        let mut bytes = [0; SID_BYTES];
        // 20 characters encode 120 bits = 15 bytes, so each id has exactly one text form.
        let whole = text.len() == SID_BYTES / 3 * 4;
        (whole && URL_SAFE_NO_PAD.decode_slice(text, &mut bytes) == Ok(SID_BYTES)).then_some(Self(bytes))
    }

    /// The shard that owns the session, if it exists.
    pub fn shard(&self) -> u16 {
        u16::from_be_bytes([self.0[0], self.0[1]])
    }
}

impl fmt::Display for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for Sid {
    /// Omits the id, which is the session's only secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sid(shard {}, …)", self.shard())
    }
}

/// Appends the `open` packet. `upgrades`: the session polls and may upgrade to a WebSocket.
pub fn push_open(out: &mut Vec<u8>, sid: &Sid, upgrades: bool, config: &Config) {
    let upgrades = if upgrades { r#"["websocket"]"# } else { "[]" };
    let Config { ping_interval_ms, ping_timeout_ms, payload_bytes_max, .. } = config;
    let open = format!(
        r#"0{{"sid":"{sid}","upgrades":{upgrades},"pingInterval":{ping_interval_ms},"pingTimeout":{ping_timeout_ms},"maxPayload":{payload_bytes_max}}}"#
    );
    out.extend_from_slice(open.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sid_has_one_text_form_and_contains_its_shard() {
        let sid = Sid::new(0x0102, [0xFB; 13]);
        let text = sid.to_string();
        assert_eq!(text, "AQL7-_v7-_v7-_v7-_v7");
        assert_eq!((Sid::parse(&text), sid.shard()), (Some(sid), 258));
        assert_eq!(format!("{sid:?}"), "Sid(shard 258, …)");
        for strange in [
            "",
            "abc",
            "AQL7-_v7-_v7-_v7-_v",
            "AQL7-_v7-_v7-_v7-_v77",
            "AQL7+/v7-_v7-_v7-_v7",
            "日本日本日本ab",
        ] {
            assert_eq!(Sid::parse(strange), None, "{strange}");
        }
    }

    #[test]
    fn open_matches_the_example_of_the_specification() {
        let sid = Sid::new(1, [0; 13]);
        let config = Config { payload_bytes_max: 1_000_000, ..Config::default() };
        let check = |upgrades, expected: &str| {
            let mut out = Vec::new();
            push_open(&mut out, &sid, upgrades, &config);
            let numbers = r#""pingInterval":25000,"pingTimeout":20000,"maxPayload":1000000}"#;
            let expected = format!(r#"0{{"sid":"AAEAAAAAAAAAAAAAAAAA","upgrades":{expected},{numbers}"#);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        };
        check(true, r#"["websocket"]"#);
        check(false, "[]");
    }
}
