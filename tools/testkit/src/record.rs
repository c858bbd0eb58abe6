//! What a fake received: the newest pushes with headers and payload, and counts of all of them. Repeated
//! pushes are detected by the sender's id and by token.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use crate::Service;
use crate::latency::hash;
use crate::rules::Verdict;

/// Distinct ids and tokens that are tracked: 4 M × about 50 bytes = 200 MB at most, for campaigns with
/// millions of devices.
const KEYS_MAX: usize = 4_000_000;
/// Maximum number of distinct reasons.
const REASONS_MAX: usize = 200;

/// A field of a payload with the time of its state in milliseconds since 1970. How old the states are when they arrive
/// is counted.
pub const AGE_FIELD: &str = "sent_at_ms";

/// A request and its answer.
#[derive(Debug, Clone, Serialize)]
pub struct Received {
    pub at_ms: u64,
    pub service: Service,
    pub token: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<uuid::Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The decrypted payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// Without authorization.
    pub headers: BTreeMap<String, String>,
    pub bytes: usize,
    pub status: u16,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    pub connection: u64,
}

/// Counts of all requests so far.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)] // a fake of another version may lack some
pub struct Counts {
    pub requests: u64,
    pub accepted: u64,
    /// Rejected requests by reason.
    pub refused: BTreeMap<String, u64>,
    /// Distinct tokens with an accepted push.
    pub tokens: u64,
    /// Of those, tokens with more than one accepted push.
    pub tokens_repeated: u64,
    /// Ids (`apns-id`) accepted more than once: duplicate pushes.
    pub ids_repeated: u64,
    /// Whether the limit of tracked ids and tokens was exceeded.
    pub overflowed: bool,
    /// Accepted payloads with [`AGE_FIELD`], by their age: exact below 100 ms, in steps of 10 ms below 10 s, then of 1 s.
    pub ages_ms: BTreeMap<u64, u64>,
    /// Milliseconds since 1970.
    pub first_at_ms: u64,
    pub last_at_ms: u64,
    pub connections: Connections,
}

#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Connections {
    pub open: u64,
    pub open_max: u64,
    pub opened: u64,
    /// Connections above the limit, reset before the handshake.
    pub reset: u64,
    /// Connections with TLS or HTTP/2 errors.
    pub failed: u64,
    /// Streams above the limit, or refused by a script: REFUSED_STREAM.
    pub streams_refused: u64,
    /// Maximum number of streams open on one connection.
    pub streams_max: u64,
    /// Streams that were not processed after GOAWAY or a reset.
    pub streams_dropped: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Record {
    pub(crate) newest: VecDeque<Received>,
    newest_max: usize,
    counts: Counts,
    pub(crate) connections: Connections,
    ids: HashMap<u128, u32>,
    tokens: HashMap<u64, u32>,
}

impl Record {
    pub(crate) fn new(newest_max: usize) -> Self {
        Self { newest_max, ..Self::default() }
    }

    /// Whether requests are kept.
    pub(crate) fn keeps(&self) -> bool {
        self.newest_max > 0
    }

    pub(crate) fn count(&mut self, verdict: &Verdict, now_ms: u64) {
        let counts = &mut self.counts;
        counts.requests += 1;
        if counts.first_at_ms == 0 {
            counts.first_at_ms = now_ms;
        }
        counts.last_at_ms = now_ms;
        if verdict.reply.is_accepted() {
            counts.accepted += 1;
            if let Some(age_ms) = verdict.payload.as_deref().and_then(|payload| age_ms(payload, now_ms)) {
                *counts.ages_ms.entry(age_ms).or_default() += 1;
            }
            counts.overflowed |= !note(&mut self.tokens, hash(verdict.token.as_bytes()));
            if let Some(id) = verdict.id {
                counts.overflowed |= !note(&mut self.ids, id.as_u128());
            }
        } else if counts.refused.len() < REASONS_MAX || counts.refused.contains_key(&verdict.reply.reason) {
            *counts.refused.entry(verdict.reply.reason.clone()).or_default() += 1;
        }
    }

    pub(crate) fn keep(&mut self, received: Received) {
        if self.newest.len() >= self.newest_max {
            self.newest.pop_front();
        }
        self.newest.push_back(received);
    }

    pub(crate) fn counts(&self) -> Counts {
        let repeated = |count: &&u32| **count > 1;
        Counts {
            tokens: self.tokens.len() as u64,
            tokens_repeated: self.tokens.values().filter(repeated).count() as u64,
            ids_repeated: self.ids.values().filter(repeated).count() as u64,
            connections: self.connections,
            ..self.counts.clone()
        }
    }

    /// Clears received requests and counts, except those of open connections.
    pub(crate) fn clear(&mut self) {
        let open = self.connections.open;
        let connections = Connections { open, open_max: open, ..Connections::default() };
        *self = Self { connections, ..Self::new(self.newest_max) };
    }
}

/// The age of the payload's state, rounded to its bucket.
fn age_ms(payload: &str, now_ms: u64) -> Option<u64> {
    let (_, rest) = payload.split_once(AGE_FIELD)?;
    let digits = rest.trim_start_matches(['"', ':', ' ']);
    let end = digits.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(digits.len());
    let age = now_ms.saturating_sub(digits[..end].parse().ok()?);
    // An hour is more than any state of a bench: the number of buckets is bounded.
    Some(match age.min(3_600_000) {
        age @ 0..100 => age,
        age @ 100..10_000 => age / 10 * 10,
        age => age / 1_000 * 1_000,
    })
}

/// Returns false if the limit is reached.
fn note<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, u32>, key: K) -> bool {
    if let Some(count) = counts.get_mut(&key) {
        *count += 1;
        return true;
    }
    if counts.len() >= KEYS_MAX {
        return false;
    }
    counts.insert(key, 1);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Reply;

    fn verdict(token: &str, id: u128, status: u16) -> Verdict {
        Verdict {
            token: token.to_owned(),
            id: Some(uuid::Uuid::from_u128(id)),
            reply: Reply::new(status, if status == 200 { "" } else { "Why" }),
            ..Verdict::default()
        }
    }

    #[test]
    fn states_are_counted_by_their_age() {
        let mut record = Record::new(0);
        for sent in [999, 990, 500, 5] {
            let payload = Some(format!(r#"{{"a":{{"sent_at_ms":{sent},"b":1}}}}"#));
            record.count(&Verdict { payload, ..verdict("a", sent, 200) }, 1_000);
        }
        record.count(&Verdict { payload: Some("{}".to_owned()), ..verdict("a", 9, 200) }, 1_000);
        assert_eq!(record.counts().ages_ms, BTreeMap::from([(1, 1), (10, 1), (500, 1), (990, 1)]));
    }

    #[test]
    fn only_pushes_accepted_twice_count_as_repeated() {
        let mut record = Record::new(10);
        for (token, id, status) in [("a", 1, 503), ("a", 1, 200), ("b", 2, 200), ("b", 2, 200), ("a", 3, 200)]
        {
            record.count(&verdict(token, id, status), 5);
        }
        let counts = record.counts();
        assert_eq!((counts.requests, counts.accepted, counts.refused["Why"]), (5, 4, 1));
        assert_eq!((counts.tokens, counts.tokens_repeated, counts.ids_repeated), (2, 2, 1));
        record.clear();
        assert_eq!(record.counts().requests, 0);
    }
}
