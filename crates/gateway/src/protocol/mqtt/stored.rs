//! A session as the store has it, in versions.
//!
//! Filters with wildcards have no position. Messages that they matched and the client has not acknowledged are stored by
//! id; of all other messages accepted up to a place in the order of commits they deliver nothing more. Nodes of other
//! versions read the versions that they know: see docs/cluster.md.

use noroshi_protocol::mqtt::{SubscribeOptions, Subscription, TopicFilter, UnacknowledgedMessage};
use noroshi_store::{ENDED_STATE_PREFIX, Place};
use noroshi_types::NotificationId;

/// Without the messages that a session owes and the places where its subscriptions began. Written if both are empty, so
/// that nodes of the version before can continue most sessions.
const VERSION: u8 = 2;
const VERSION_OWED: u8 = 3;
/// Messages that a session owes in addition to those behind [`StoredSession::since`]: twice what may be in flight, and
/// retained messages. Further retained messages are left out.
pub(crate) const OWED_MAX: usize = 1_024;
const RETAINED: u8 = 1;
/// With the options of a subscription, in a bit that MQTT reserves (§3.8.3.1): the client did not make it.
const MADE_ELSEWHERE: u8 = 1 << 7;
/// In the other reserved bit: the retained messages of its topics are not read yet.
const RETAINED_DUE: u8 = 1 << 6;

/// What the store has of a session.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StoredSession {
    /// Filters with wildcards deliver only `owed` messages among those accepted up to here.
    pub(crate) since: Place,
    /// How long it outlives its connection.
    pub(crate) expiry_s: u32,
    /// In the order in which it was sent; at most [`OWED_MAX`].
    pub(crate) owed: Vec<UnacknowledgedMessage>,
    pub(crate) subscriptions: Vec<Subscription>,
}

impl StoredSession {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let is_late = |held: &Subscription| held.since > self.since.0;
        let is_plain = self.owed.is_empty() && !self.subscriptions.iter().any(is_late);
        let mut out = vec![if is_plain { VERSION } else { VERSION_OWED }];
        out.extend_from_slice(&self.since.0.to_be_bytes());
        out.extend_from_slice(&self.expiry_s.to_be_bytes());
        if !is_plain {
            let owed = &self.owed[..self.owed.len().min(OWED_MAX)];
            out.extend_from_slice(&(owed.len() as u16).to_be_bytes());
            for UnacknowledgedMessage { id, retained } in owed {
                out.extend_from_slice(id.as_bytes());
                out.push(if *retained { RETAINED } else { 0 });
            }
        }
        for Subscription { filter, options, id, is_of_client, since, retained_due } in &self.subscriptions {
            let text = filter.as_str().as_bytes();
            // One byte has the length. If the operator allows longer filters: 0, and then two bytes. No filter is
            // empty, so earlier versions reject such a session as unknown.
            match u8::try_from(text.len()) {
                Ok(len) => out.push(len),
                Err(_) => {
                    out.push(0);
                    out.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
                }
            }
            out.extend_from_slice(&text[..text.len().min(usize::from(u16::MAX))]);
            let made = if *is_of_client { 0 } else { MADE_ELSEWHERE };
            let due = if *retained_due { RETAINED_DUE } else { 0 };
            out.push(options.as_u8() | made | due);
            out.extend_from_slice(&id.to_be_bytes());
            if !is_plain {
                out.extend_from_slice(&since.to_be_bytes());
            }
        }
        out
    }

    /// The second value: whether the session has ended, because the device got another user or its tokens were revoked.
    /// `None` if another program wrote it.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, bool)> {
        let (bytes, ended) = match bytes.strip_prefix(&[ENDED_STATE_PREFIX]) {
            Some(bytes) => (bytes, true),
            None => (bytes, false),
        };
        let (is_plain, mut rest) = match bytes.split_first()? {
            (&VERSION, rest) => (true, rest),
            (&VERSION_OWED, rest) => (false, rest),
            _ => return None,
        };
        let since = Place(i64::from_be_bytes(take(&mut rest)?));
        let expiry_s = u32::from_be_bytes(take(&mut rest)?);
        let count = if is_plain { 0 } else { u16::from_be_bytes(take(&mut rest)?) };
        let mut owed = Vec::new();
        for _ in 0..count {
            let id = NotificationId::from_bytes(take(&mut rest)?);
            let [flags] = take(&mut rest)?;
            owed.push(UnacknowledgedMessage { id, retained: flags & RETAINED != 0 });
        }
        let mut subscriptions = Vec::new();
        while let Some((len, mut after)) = rest.split_first() {
            let len = match *len {
                0 => u16::from_be_bytes(take(&mut after)?),
                len => u16::from(len),
            };
            let (text, after) = after.split_at_checked(usize::from(len))?;
            let (options, mut after) = after.split_first()?;
            subscriptions.push(Subscription {
                filter: TopicFilter::parse(std::str::from_utf8(text).ok()?).ok()?,
                options: SubscribeOptions::from_u8(options & !(MADE_ELSEWHERE | RETAINED_DUE))?,
                id: u32::from_be_bytes(take(&mut after)?),
                is_of_client: options & MADE_ELSEWHERE == 0,
                since: if is_plain { 0 } else { i64::from_be_bytes(take(&mut after)?) },
                retained_due: options & RETAINED_DUE != 0,
            });
            rest = after;
        }
        Some((Self { since, expiry_s, owed, subscriptions }, ended))
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(*bytes)
}

#[cfg(test)]
mod tests {
    use noroshi_protocol::mqtt::Qos;

    use super::*;

    #[test]
    fn a_stored_session_is_parsed_again() {
        let stored = stored();
        let bytes = stored.encode();
        assert_eq!(bytes[0], 2);
        assert_eq!(StoredSession::parse(&bytes), Some((stored.clone(), false)));
        let ended = [&[ENDED_STATE_PREFIX], bytes.as_slice()].concat();
        assert_eq!(StoredSession::parse(&ended), Some((stored, true)));
        for cut in (0..bytes.len()).filter(|cut| ![13, 22, 29].contains(cut)) {
            assert_eq!(StoredSession::parse(&bytes[..cut]), None, "{cut}");
        }
        assert_eq!(StoredSession::parse(&[9]), None, "another program's");
    }

    /// A session that owes nothing: the second version.
    fn stored() -> StoredSession {
        let held = |filter: &str, id, is_of_client| Subscription {
            filter: TopicFilter::parse(filter).expect("a filter"),
            options: SubscribeOptions::new(Qos::ExactlyOnce),
            id,
            is_of_client,
            since: 0,
            retained_due: id == 9,
        };
        let subscriptions = vec![held("a/+", 0, true), held("b", 0, false), held("$noroshi/inbox", 9, true)];
        StoredSession { since: Place(77), expiry_s: 60, owed: Vec::new(), subscriptions }
    }

    #[test]
    fn owed_messages_and_places_of_subscriptions_are_parsed_again() {
        let owed =
            |byte, retained| UnacknowledgedMessage { id: NotificationId::from_bytes([byte; 16]), retained };
        let mut later = stored();
        later.subscriptions[1].since = 78;
        for stored in [StoredSession { owed: vec![owed(1, false), owed(2, true)], ..stored() }, later] {
            let bytes = stored.encode();
            assert_eq!(bytes[0], 3);
            assert_eq!(StoredSession::parse(&bytes), Some((stored.clone(), false)));
            let ends = (0..bytes.len()).filter(|cut| StoredSession::parse(&bytes[..*cut]).is_some()).count();
            assert_eq!(ends, stored.subscriptions.len(), "only between subscriptions");
        }
        let many = vec![owed(3, false); OWED_MAX + 1];
        let (parsed, _) =
            StoredSession::parse(&StoredSession { owed: many, ..stored() }.encode()).expect("whole");
        assert_eq!((parsed.owed.len(), parsed.subscriptions.len()), (OWED_MAX, 3));
        let early = Subscription { since: 77, ..stored().subscriptions[0].clone() };
        let bytes = StoredSession { subscriptions: vec![early], ..stored() }.encode();
        assert_eq!(bytes[0], 2, "it brings nothing less than the others");
    }
}
