//! What a fake received: each push with its headers and payload, the newest kept, and counts over all of them.
//! What was accepted more than once shows, by the sender's id and by token.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::Serialize;

use crate::ask::{Judged, Service};
use crate::latency::hash;

/// Ids and tokens that are told apart: 4 M × about 50 bytes = 200 MB at most, for campaigns of millions.
const KEYS_MAX: usize = 4_000_000;
/// Different reasons that are counted apart.
const REASONS_MAX: usize = 200;

/// One request as it came, and the answer.
#[derive(Debug, Clone, Serialize)]
pub struct Received {
    pub at_ms: u64,
    pub service: Service,
    pub token: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<uuid::Uuid>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What the device would get, decrypted.
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

/// What all requests so far were.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Counts {
    pub requests: u64,
    pub accepted: u64,
    /// By reason, those that were not accepted.
    pub refused: BTreeMap<String, u64>,
    /// Different tokens that something was accepted for.
    pub tokens: u64,
    /// Of those, the ones that more than one push was accepted for.
    pub tokens_repeated: u64,
    /// Ids (`apns-id`) accepted more than once: doubled pushes.
    pub ids_repeated: u64,
    /// More were received than are told apart.
    pub overflowed: bool,
    /// Milliseconds since 1970.
    pub first_at_ms: u64,
    pub last_at_ms: u64,
    pub connections: Connections,
}

#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Connections {
    pub open: u64,
    pub open_max: u64,
    pub opened: u64,
    /// Over the cap, reset before the handshake.
    pub reset: u64,
    /// TLS or HTTP/2 went wrong.
    pub failed: u64,
    /// Streams over the limit, or scripted: REFUSED_STREAM.
    pub streams_refused: u64,
    /// Most streams open on one connection.
    pub streams_max: u64,
    /// Streams after a GOAWAY or a reset that were not processed.
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

    /// Whether whole requests are kept.
    pub(crate) fn keeps(&self) -> bool {
        self.newest_max > 0
    }

    pub(crate) fn count(&mut self, judged: &Judged, now_ms: u64) {
        let counts = &mut self.counts;
        counts.requests += 1;
        if counts.first_at_ms == 0 {
            counts.first_at_ms = now_ms;
        }
        counts.last_at_ms = now_ms;
        if judged.reply.is_accepted() {
            counts.accepted += 1;
            counts.overflowed |= !note(&mut self.tokens, hash(judged.token.as_bytes()));
            if let Some(id) = judged.id {
                counts.overflowed |= !note(&mut self.ids, id.as_u128());
            }
        } else if counts.refused.len() < REASONS_MAX || counts.refused.contains_key(&judged.reply.reason) {
            *counts.refused.entry(judged.reply.reason.clone()).or_default() += 1;
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

    /// Forgets what was received; connections that are open stay counted.
    pub(crate) fn clear(&mut self) {
        let open = self.connections.open;
        let connections = Connections { open, open_max: open, ..Connections::default() };
        *self = Self { connections, ..Self::new(self.newest_max) };
    }
}

/// False: there was no place for another.
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
    use crate::ask::Reply;

    fn judged(token: &str, id: u128, status: u16) -> Judged {
        Judged {
            token: token.to_owned(),
            id: Some(uuid::Uuid::from_u128(id)),
            reply: Reply::new(status, if status == 200 { "" } else { "Why" }),
            ..Judged::default()
        }
    }

    #[test]
    fn a_push_accepted_twice_shows_and_one_refused_before_does_not() {
        let mut record = Record::new(10);
        for (token, id, status) in [("a", 1, 503), ("a", 1, 200), ("b", 2, 200), ("b", 2, 200), ("a", 3, 200)]
        {
            record.count(&judged(token, id, status), 5);
        }
        let counts = record.counts();
        assert_eq!((counts.requests, counts.accepted, counts.refused["Why"]), (5, 4, 1));
        assert_eq!((counts.tokens, counts.tokens_repeated, counts.ids_repeated), (2, 2, 1));
        record.clear();
        assert_eq!(record.counts().requests, 0);
    }
}
