//! Records of attempts at pushes: which attempts are kept, and their stored format.
//!
//! Attempts at recipients that a request named are always kept, and so are failures. Of campaigns, topics and conditions
//! a sample of the others is kept: their audiences have no bound. A row of the store has the attempts of one batch, of a
//! part of it, or of a slice of a Live Activity, or one attempt at a broadcast. They are JSON, compressed; of each attempt only what differs from the one before is written, because the
//! pushes of a batch mostly differ in their token and their id.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use noroshi_push::{Attempt, Record};
use noroshi_store::PushRecord;
use noroshi_types::{DeviceNum, Timestamp};
use serde::{Deserialize, Serialize};

/// JSON of one row before compression: 500 attempts with a body of 4 KiB each. Further attempts are left out.
const JSON_BYTES_MAX: usize = 2 << 20;

const MILLION: u32 = 1_000_000;
/// How many times more pushes of a group are in the sample, if any is: a row costs more than a few attempts in it.
const GROUPED: u32 = 10;

/// Which attempts are kept, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recording {
    /// Zero: nothing is kept.
    pub retention: Duration,
    /// How many of a million accepted pushes of campaigns, topics and conditions.
    pub sample: u32,
}

impl Default for Recording {
    fn default() -> Self {
        Self { retention: Duration::from_secs(7 * 86_400), sample: 10_000 }
    }
}

impl Recording {
    /// Which attempts at a push are kept. `id` is the same for each attempt, so a push is in the sample or it is not.
    pub(super) fn of(self, names_recipients: bool, id: &uuid::Uuid) -> Record {
        if self.retention.is_zero() {
            return Record::Nothing;
        }
        match names_recipients || place(id) < self.sample {
            true => Record::All,
            false => Record::Failures,
        }
    }

    /// For pushes whose attempts share a row: of most groups none is in the sample. `id` is that of the group.
    pub(super) fn of_group(self, id: &uuid::Uuid) -> Self {
        let sample = self.sample.saturating_mul(GROUPED).min(MILLION);
        // The part of the groups, times the part of their pushes, is the sample.
        let is_in = u64::from(place(id)) * u64::from(sample) < u64::from(self.sample) * u64::from(MILLION);
        Self { sample: if is_in { sample } else { 0 }, ..self }
    }

    /// The row for these attempts. `None` without any.
    pub(super) fn row(self, attempts: &[(DeviceNum, Attempt)], now: Timestamp) -> Option<Box<PushRecord>> {
        if attempts.is_empty() {
            return None;
        }
        let (attempts, mut devices) = encode(attempts);
        devices.sort_unstable();
        devices.dedup();
        let keep_until = now.saturating_add(self.retention);
        Some(Box::new(PushRecord { keep_until, devices, attempts }))
    }
}

/// Evenly distributed below a million.
fn place(id: &uuid::Uuid) -> u32 {
    let (random, _) = id.as_u64_pair();
    // The upper bits hold the version of the UUID; these are of the hash.
    (random >> 16) as u32 % MILLION
}

/// An attempt as it was recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedAttempt {
    pub sent_at: Timestamp,
    pub took: Duration,
    /// The whole URL.
    pub url: String,
    /// Without the authorization.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
    /// The status and the body of the response; `None`: there was none.
    pub response: Option<(u16, Vec<u8>)>,
    pub reason: Option<String>,
}

/// One attempt in a row. `None`: as in the line before.
#[derive(Default, Serialize, Deserialize)]
struct Line {
    #[serde(rename = "d")]
    device: u64,
    /// Milliseconds.
    #[serde(rename = "t")]
    sent_at: u64,
    /// Microseconds.
    #[serde(rename = "us")]
    took: u64,
    #[serde(rename = "o", skip_serializing_if = "Option::is_none", default)]
    origin: Option<String>,
    #[serde(rename = "p", skip_serializing_if = "Option::is_none", default)]
    path: Option<String>,
    /// Headers that the line before does not have, or with another value; `None`: the header is gone.
    #[serde(rename = "h", skip_serializing_if = "BTreeMap::is_empty", default)]
    headers: BTreeMap<String, Option<String>>,
    #[serde(rename = "b", skip_serializing_if = "Option::is_none", default)]
    body: Option<Text>,
    #[serde(rename = "s", skip_serializing_if = "Option::is_none", default)]
    status: Option<u16>,
    /// The body of the response, unless it is empty.
    #[serde(rename = "a", skip_serializing_if = "Option::is_none", default)]
    answer: Option<Text>,
    #[serde(rename = "r", skip_serializing_if = "Option::is_none", default)]
    reason: Option<String>,
}

/// Bytes that are mostly text.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Text {
    Utf8(String),
    Bytes(Vec<u8>),
}

impl Text {
    fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Utf8(text.to_owned()),
            Err(_) => Self::Bytes(bytes.to_vec()),
        }
    }

    fn into_bytes(self) -> Vec<u8> {
        match self {
            Self::Utf8(text) => text.into_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// The compressed lines, and the devices that they are of.
fn encode(attempts: &[(DeviceNum, Attempt)]) -> (Vec<u8>, Vec<DeviceNum>) {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    let (mut written, mut devices, mut line) = (0, Vec::with_capacity(attempts.len()), Vec::new());
    let mut before: Option<&Attempt> = None;
    for (device, attempt) in attempts {
        line.clear();
        let difference = difference(*device, attempt, before);
        serde_json::to_writer(&mut line, &difference).expect("a line has no map with keys that are not text");
        line.push(b'\n');
        written += line.len();
        if written > JSON_BYTES_MAX {
            break;
        }
        encoder.write_all(&line).expect("a vector accepts every byte");
        devices.push(*device);
        before = Some(attempt);
    }
    (encoder.finish().expect("a vector accepts every byte"), devices)
}

fn difference(device: DeviceNum, attempt: &Attempt, before: Option<&Attempt>) -> Line {
    let text = |value: &Bytes| String::from_utf8_lossy(value).into_owned();
    let value_before = |name: &str| {
        let headers = &before?.headers;
        headers.iter().find(|(other, _)| *other == name).map(|(_, value)| value)
    };
    let mut headers: BTreeMap<String, Option<String>> = attempt
        .headers
        .iter()
        .filter(|(name, value)| value_before(name) != Some(value))
        .map(|(name, value)| ((*name).to_owned(), Some(text(value))))
        .collect();
    let has = |name: &str| attempt.headers.iter().any(|(other, _)| *other == name);
    for (name, _) in before.iter().flat_map(|before| &before.headers).filter(|(name, _)| !has(name)) {
        headers.insert((*name).to_owned(), None);
    }
    let response = attempt.response.as_ref();
    Line {
        device: device.0,
        sent_at: attempt.sent_at.0,
        took: attempt.took.as_micros() as u64,
        origin: (before.map(|before| &before.origin) != Some(&attempt.origin))
            .then(|| attempt.origin.to_string()),
        path: (before.map(|before| &before.path) != Some(&attempt.path)).then(|| attempt.path.clone()),
        headers,
        body: (before.map(|before| &before.body) != Some(&attempt.body)).then(|| Text::of(&attempt.body)),
        status: response.map(|response| response.status),
        answer: response
            .filter(|response| !response.body.is_empty())
            .map(|response| Text::of(&response.body)),
        reason: attempt.reason.map(str::to_owned),
    }
}

/// The attempts at one device in a row of the store. The error says what is wrong with the row.
pub fn decode(row: &[u8], device: DeviceNum) -> Result<Vec<RecordedAttempt>, String> {
    let mut json = String::new();
    let mut limited = DeflateDecoder::new(row).take(JSON_BYTES_MAX as u64 + 1);
    limited.read_to_string(&mut json).map_err(|error| error.to_string())?;
    let mut found = Vec::new();
    let (mut origin, mut path, mut headers, mut body) =
        (String::new(), String::new(), BTreeMap::new(), Vec::new());
    for line in json.lines() {
        let line: Line = serde_json::from_str(line).map_err(|error| error.to_string())?;
        origin = line.origin.unwrap_or(origin);
        path = line.path.unwrap_or(path);
        body = line.body.map_or(body, Text::into_bytes);
        for (name, value) in line.headers {
            match value {
                Some(value) => drop(headers.insert(name, value)),
                None => drop(headers.remove(&name)),
            }
        }
        if line.device == device.0 {
            let answer = line.answer.map(Text::into_bytes).unwrap_or_default();
            found.push(RecordedAttempt {
                sent_at: Timestamp(line.sent_at),
                took: Duration::from_micros(line.took),
                url: format!("{origin}{path}"),
                headers: headers.clone(),
                body: body.clone(),
                response: line.status.map(|status| (status, answer)),
                reason: line.reason,
            });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use noroshi_push::Received;

    use super::super::recipient::push_id;
    use super::*;

    fn attempt(token: &str, id: &'static str, body: &'static [u8]) -> Attempt {
        Attempt {
            sent_at: Timestamp(1_000),
            took: Duration::from_micros(12_345),
            origin: "https://api.push.apple.com".into(),
            path: format!("/3/device/{token}"),
            headers: vec![
                ("apns-topic", Bytes::from_static(b"com.example")),
                ("apns-id", Bytes::from_static(id.as_bytes())),
            ],
            body: Bytes::from_static(body),
            response: Some(Received { status: 200, body: Bytes::new() }),
            reason: None,
        }
    }

    fn row(attempts: &[(DeviceNum, Attempt)]) -> PushRecord {
        *Recording::default().row(attempts, Timestamp(5_000)).expect("attempts")
    }

    #[test]
    fn attempts_are_returned_as_they_were() {
        let refused = Attempt {
            headers: vec![("apns-id", Bytes::from_static(b"3")), ("ttl", Bytes::from_static(b"9"))],
            response: Some(Received { status: 400, body: Bytes::from_static(b"{\"reason\":\"x\"}") }),
            reason: Some("BadTopic"),
            ..attempt("cc", "3", b"\xff\x00")
        };
        let lost = Attempt { response: None, reason: Some("timeout"), ..attempt("aa", "1", b"{}") };
        let record = row(&[
            (DeviceNum(9), attempt("aa", "1", b"{}")),
            (DeviceNum(4), attempt("bb", "2", b"{}")),
            (DeviceNum(5), refused),
            (DeviceNum(9), lost),
        ]);
        assert_eq!(record.devices, [DeviceNum(4), DeviceNum(5), DeviceNum(9)]);
        assert_eq!(record.keep_until, Timestamp(5_000 + 7 * 86_400_000));
        let of = |device| decode(&record.attempts, DeviceNum(device)).expect("a row");
        let expected = |token: &str, id: &str| RecordedAttempt {
            sent_at: Timestamp(1_000),
            took: Duration::from_micros(12_345),
            url: format!("https://api.push.apple.com/3/device/{token}"),
            headers: [("apns-topic", "com.example"), ("apns-id", id)]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            body: b"{}".to_vec(),
            response: Some((200, Vec::new())),
            reason: None,
        };
        assert_eq!(of(4), [expected("bb", "2")]);
        let lost =
            RecordedAttempt { response: None, reason: Some("timeout".to_owned()), ..expected("aa", "1") };
        assert_eq!(of(9), [expected("aa", "1"), lost]);
        let [refused] = &of(5)[..] else { panic!("one attempt") };
        assert_eq!(refused.response, Some((400, b"{\"reason\":\"x\"}".to_vec())));
        assert_eq!((&refused.body[..], refused.headers.get("apns-topic")), (&b"\xff\x00"[..], None));
        assert!(of(6).is_empty());
        assert!(decode(b"no row", DeviceNum(9)).is_err());
    }

    #[test]
    fn a_batch_takes_little_room() {
        let attempts: Vec<_> = (0..500_u64)
            .map(|i| {
                let id = push_id(&[1; 16], DeviceNum(i)).to_string();
                let token = format!("{id}{id}").replace('-', "");
                (DeviceNum(i), attempt(&token, id.leak(), b"{\"aps\":{\"alert\":\"News\"}}"))
            })
            .collect();
        let bytes = row(&attempts).attempts.len();
        // 64 digits of the token and 32 of the id are random: 48 bytes.
        assert!(bytes < 500 * 100, "{bytes} bytes");
    }

    #[test]
    fn a_row_is_bounded() {
        let large: &'static [u8] = vec![b'x'; 5_000].leak();
        let other: &'static [u8] = vec![b'y'; 5_000].leak();
        let body = |i: u64| if i.is_multiple_of(2) { large } else { other };
        let attempts: Vec<_> = (0..500).map(|i| (DeviceNum(i), attempt("aa", "1", body(i)))).collect();
        let record = row(&attempts);
        let kept = record.devices.len();
        assert!((300..500).contains(&kept), "{kept}");
        let last = record.devices[kept - 1];
        assert_eq!(decode(&record.attempts, last).expect("a row").len(), 1);
    }

    #[test]
    fn a_sample_of_large_audiences_is_recorded() {
        let recording = Recording { sample: 100_000, ..Recording::default() };
        let ids: Vec<_> = (0..10_000).map(|i| push_id(&[1; 16], DeviceNum(i))).collect();
        let all = |recording: Recording, named| {
            ids.iter().filter(|id| recording.of(named, id) == Record::All).count()
        };
        let sampled = all(recording, false);
        assert!((850..1_150).contains(&sampled), "{sampled}");
        assert_eq!(all(recording, true), 10_000);
        assert_eq!(all(Recording { sample: 0, ..recording }, false), 0);
        for (sample, groups, grouped) in
            [(100_000, 1_000, 10_000), (500_000, 5_000, 10_000), (1_000, 1_000, 100)]
        {
            let of = |id| Recording { sample, ..recording }.of_group(id);
            let taken: Vec<_> = ids.iter().map(of).filter(|of| of.sample > 0).collect();
            assert!(taken.len().abs_diff(groups) < 200, "{} groups", taken.len());
            assert!(all(taken[0], false).abs_diff(grouped) < 100, "{sample}");
        }
        let off = Recording { retention: Duration::ZERO, ..recording };
        assert!(ids.iter().all(|id| off.of(true, id) == Record::Nothing));
    }
}
