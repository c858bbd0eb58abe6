//! The contents of published messages, which contain the time of their creation, and of requests to connected
//! and offline devices.

use std::io::Write;

use memchr::memmem;
use serde::{Deserialize, Serialize};

/// Precedes the nanoseconds of [`crate::clock::now_ns`].
const STAMP: &[u8] = b"\"ns\":";
const PLAIN_STAMP: &[u8] = b"noroshi-ns-";
/// `{"ns":…,"pad":""}` with twenty digits; the plain form is shorter.
pub(crate) const DATA_BYTES_MIN: usize = 36;

/// Appends `data` of exactly `bytes` (at least [`DATA_BYTES_MIN`]).
pub(crate) fn push_data(out: &mut Vec<u8>, stamp_ns: u64, bytes: usize) {
    let end = out.len() + bytes;
    let written = write!(out, "{{\"ns\":{stamp_ns},\"pad\":\"");
    written.expect("writing to memory cannot fail");
    out.resize(end.saturating_sub(2).max(out.len()), b'x');
    out.extend_from_slice(b"\"}");
}

/// Appends the plain form for foreign servers: letters, digits and '-', which are never escaped.
pub(crate) fn push_plain_data(out: &mut Vec<u8>, stamp_ns: u64, bytes: usize) {
    let end = out.len() + bytes;
    out.extend_from_slice(PLAIN_STAMP);
    write!(out, "{stamp_ns}-").expect("writing to memory cannot fail");
    out.resize(end.max(out.len()), b'x');
}

/// Finds the time stamp in a message, wherever the server put its `data`.
#[derive(Debug, Clone)]
pub(crate) struct StampFinder {
    finder: memmem::Finder<'static>,
    len: usize,
}

impl StampFinder {
    pub(crate) fn new() -> Self {
        Self::of(STAMP)
    }

    /// For [`push_plain_data`].
    pub(crate) fn plain() -> Self {
        Self::of(PLAIN_STAMP)
    }

    fn of(stamp: &'static [u8]) -> Self {
        Self { finder: memmem::Finder::new(stamp), len: stamp.len() }
    }

    pub(crate) fn find(&self, text: &[u8]) -> Option<u64> {
        self.number(text, self.finder.find(text)?)
    }

    /// For servers that combine messages in one frame.
    pub(crate) fn find_all<'a>(&'a self, text: &'a [u8]) -> impl Iterator<Item = u64> + 'a {
        self.finder.find_iter(text).filter_map(move |at| self.number(text, at))
    }

    fn number(&self, text: &[u8], at: usize) -> Option<u64> {
        let digits = &text[at + self.len..];
        let len = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(&digits[..len]).ok()?.parse().ok()
    }
}

/// Draws without repetition, by shuffling lazily.
#[derive(Debug)]
pub(crate) struct Draw {
    order: Vec<u32>,
    /// xorshift64: the selection need not be unpredictable, only spread.
    state: u64,
}

impl Draw {
    pub(crate) fn new(numbers: impl Iterator<Item = u32>, seed: u64) -> Self {
        Self { order: numbers.collect(), state: seed | 1 }
    }

    /// `count` different numbers; all of them if there are fewer.
    pub(crate) fn draw(&mut self, count: usize) -> &[u32] {
        let count = count.min(self.order.len());
        for at in 0..count {
            let rest = (self.order.len() - at) as u64;
            let other = at + (self.next() % rest) as usize;
            self.order.swap(at, other);
        }
        &self.order[..count]
    }

    /// All numbers, in their current order.
    pub(crate) fn all(&self) -> &[u32] {
        &self.order
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }
}

/// Names of devices and their users: a device's user has the same name.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Names {
    pub(crate) prefix: String,
}

impl Names {
    pub(crate) fn connected(&self, number: usize) -> String {
        format!("{}-{number}", self.prefix)
    }

    pub(crate) fn away(&self, number: usize) -> String {
        format!("{}-away-{number}", self.prefix)
    }
}

/// `when` as in the API, for connected devices.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
pub(crate) enum When {
    #[default]
    Connected,
    Stored,
}

impl When {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            When::Connected => "connected",
            When::Stored => "stored",
        }
    }
}

/// Appends the body of a request to the users with these numbers.
pub(crate) fn push_users_body(
    out: &mut Vec<u8>,
    names: &Names,
    (connected, away): (&[u32], &[u32]),
    when: When,
    stamp_ns: u64,
    data_bytes: usize,
) {
    out.extend_from_slice(br#"{"to":{"users":["#);
    let prefix = &names.prefix;
    for (at, number) in connected.iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        write!(out, "{comma}\"{prefix}-{number}\"").expect("writing to memory cannot fail");
    }
    for (at, number) in away.iter().enumerate() {
        let comma = if at == 0 && connected.is_empty() { "" } else { "," };
        write!(out, "{comma}\"{prefix}-away-{number}\"").expect("writing to memory cannot fail");
    }
    write!(out, "]}},\"when\":\"{}\",\"data\":", when.as_str()).expect("writing to memory cannot fail");
    push_data(out, stamp_ns, data_bytes);
    out.push(b'}');
}

/// Appends the body of a request to a topic.
pub(crate) fn push_topic_body(out: &mut Vec<u8>, topic: &str, when: When, stamp_ns: u64, data_bytes: usize) {
    write!(out, "{{\"to\":{{\"topic\":\"{topic}\"}},\"when\":\"{}\",\"data\":", when.as_str())
        .expect("writing to memory cannot fail");
    push_data(out, stamp_ns, data_bytes);
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_json_of_the_requested_size_with_its_stamp() {
        for (stamp, bytes) in [(0, 200), (u64::MAX, DATA_BYTES_MIN), (123_456_789, 4_096)] {
            let mut out = b"before".to_vec();
            push_data(&mut out, stamp, bytes);
            let data = &out[6..];
            assert_eq!(data.len(), bytes);
            let value: serde_json::Value = serde_json::from_slice(data).unwrap();
            assert_eq!(value["ns"], stamp);
            let frame = [br#"{"t":"msg","id":"x","data":"#, data, br#","sent_at":"y"}"#].concat();
            assert_eq!(StampFinder::new().find(&frame), Some(stamp));
        }
        assert_eq!(StampFinder::new().find(br#"{"t":"pong"}"#), None);
        assert_eq!(StampFinder::new().find(br#"{"ns":"later"}"#), None);
    }

    #[test]
    fn plain_data_survives_quoting_and_combined_frames() {
        let mut out = Vec::new();
        push_plain_data(&mut out, u64::MAX, 100);
        assert_eq!(out.len(), 100);
        assert!(out.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-'));
        let mut frame = [br#"42["m","{\"a\":\""#, out.as_slice(), b"\\n"].concat();
        push_plain_data(&mut frame, 7, DATA_BYTES_MIN);
        frame.extend_from_slice(b"noroshi-ns-later");
        assert_eq!(StampFinder::plain().find_all(&frame).collect::<Vec<_>>(), [u64::MAX, 7]);
        assert_eq!(StampFinder::plain().find(b"nothing"), None);
    }

    #[test]
    fn bodies_are_json_with_every_target_once() {
        let names = Names { prefix: "b".to_owned() };
        for (connected, away) in [(&[1, 2][..], &[3][..]), (&[], &[3, 4]), (&[5], &[])] {
            let mut body = Vec::new();
            push_users_body(&mut body, &names, (connected, away), When::Stored, 7, 100);
            let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
            let mut expected: Vec<_> = connected.iter().map(|n| names.connected(*n as usize)).collect();
            expected.extend(away.iter().map(|n| names.away(*n as usize)));
            assert_eq!(value["to"]["users"], serde_json::json!(expected));
            assert_eq!((&value["when"], &value["data"]["ns"]), (&"stored".into(), &7.into()));
        }
        let mut body = Vec::new();
        push_topic_body(&mut body, "t", When::Connected, 7, 100);
        let value: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(value["to"], serde_json::json!({"topic": "t"}));
    }

    #[test]
    fn draws_never_repeat_and_reach_everyone() {
        let mut draw = Draw::new(0..50, 9);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..100 {
            let drawn: std::collections::HashSet<u32> = draw.draw(20).iter().copied().collect();
            assert_eq!(drawn.len(), 20);
            seen.extend(drawn);
        }
        assert_eq!(seen.len(), 50);
        assert_eq!(draw.draw(80).len(), 50);
    }
}
