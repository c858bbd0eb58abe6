//! Sessions whose connections broke and that a client may resume (XEP-0198 §5), at most one for each device. A [`Lot`]
//! bounds them; each is kept for the time that its client was promised.
//!
//! They live in this node's memory. A client whose session is lost (a restart, another node) begins a new one, and its
//! inbox then delivers the unacknowledged messages.
//!
//! Invariant: only the holder that left a session resumes it. A device that was revoked, deleted and made again, or
//! given to another user since then finds nothing.

use std::time::Duration;

use noroshi_protocol::xmpp::{Framing, Suspended};
use noroshi_types::{AppId, Timestamp, Topic};
use parking_lot::Mutex;

use crate::session::parking::{Capacity, Lot};
use crate::session::registry::{Holder, Key};

/// A session that waits for its client.
pub(crate) struct Parked {
    pub(crate) suspended: Box<Suspended>,
    /// Subscriptions of the connection that broke.
    pub(crate) topics: Vec<Topic>,
    pub(crate) holder: Holder,
}

impl Parked {
    fn bytes(&self) -> usize {
        let topics = self.topics.iter().map(|topic| size_of::<Topic>() + topic.as_str().len());
        size_of::<Self>() + self.suspended.held_bytes() + topics.sum::<usize>()
    }
}

/// Its lock guards the lot only; nothing else is locked under it.
pub(crate) struct Parking(Mutex<Lot<Parked>>);

impl Parking {
    pub(crate) fn new(capacity: Capacity) -> Self {
        Self(Mutex::new(Lot::new(capacity)))
    }

    /// Keeps a session for `time`. Returns how many sessions were evicted for it.
    pub(crate) fn park(
        &self,
        device: Key,
        app: AppId,
        parked: Parked,
        now: Timestamp,
        time: Duration,
    ) -> usize {
        let bytes = parked.bytes();
        self.0.lock().insert(device, app, now.saturating_add(time), bytes, parked).len()
    }

    /// The topics of the session with this id, if it belongs to this device and has this framing. The session stays.
    pub(crate) fn topics(
        &self,
        device: Key,
        id: &str,
        framing: Framing,
        now: Timestamp,
    ) -> Option<Vec<Topic>> {
        let mut lot = self.0.lock();
        expire(&mut lot, now);
        let parked = lot.get(device).filter(|parked| parked.suspended.id() == id)?;
        // The stanzas that it holds are framed already.
        (parked.suspended.framing() == framing).then(|| parked.topics.clone())
    }

    /// Whether `holder` may resume the session with this id.
    pub(crate) fn is_held_by(&self, device: Key, id: &str, holder: Holder) -> bool {
        is_held_by(&self.0.lock(), device, id, holder)
    }

    /// Takes the session with this id, if it belongs to this holder.
    pub(crate) fn take(&self, device: Key, id: &str, holder: Holder, now: Timestamp) -> Option<Parked> {
        let mut lot = self.0.lock();
        expire(&mut lot, now);
        if is_held_by(&lot, device, id, holder) { lot.remove(device) } else { None }
    }

    /// Forgets the session of a device that began another one, or that may not resume this one.
    pub(crate) fn forget(&self, device: Key) {
        self.0.lock().remove(device);
    }

    /// An app was deleted.
    pub(crate) fn forget_app(&self, app: AppId) {
        self.0.lock().remove_app(app);
    }

    /// Drops expired sessions. Returns how many remain, and their bytes.
    pub(crate) fn expire(&self, now: Timestamp) -> (usize, usize) {
        let mut lot = self.0.lock();
        expire(&mut lot, now);
        (lot.len(), lot.bytes())
    }
}

fn is_held_by(lot: &Lot<Parked>, device: Key, id: &str, holder: Holder) -> bool {
    lot.get(device).is_some_and(|parked| parked.suspended.id() == id && parked.holder == holder)
}

fn expire(lot: &mut Lot<Parked>, now: Timestamp) {
    while lot.take_due(now).is_some() {}
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use noroshi_protocol::xmpp::{Config, Context, Conversation, Framing, Input, Output, Security};
    use noroshi_types::{DeviceId, DeviceNum};

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const HOLDER: Holder = Holder { num: DeviceNum(1), user_key: 3, token_version: 1 };

    /// A session whose connection broke right after it began to count stanzas.
    fn parked(number: u8) -> Parked {
        let config = Config::new("localhost");
        let random = |bytes: &mut [u8]| bytes.fill(number);
        let cx = Context { config: &config, random: &random, now_ms: 0 };
        let mut conversation = Conversation::new(Framing::Stream, Security::Encrypted);
        let mut out = Output::default();
        let header = "<stream:stream to='localhost' version='1.0' xmlns='jabber:client' \
                      xmlns:stream='http://etherx.jabber.org/streams'>";
        conversation.receive(&cx, Input::Header(header), &mut out);
        let log_in = format!(
            "<authenticate xmlns='urn:xmpp:sasl:2' mechanism='PLAIN'><initial-response>{}</initial-response>\
             <bind xmlns='urn:xmpp:bind:0'><enable xmlns='urn:xmpp:sm:3' resume='true'/></bind></authenticate>",
            STANDARD.encode("\0d\0t")
        );
        conversation.receive(&cx, Input::Element(&log_in), &mut out);
        conversation.authenticated(&cx, DeviceId::parse("d").expect("an id"), &mut out);
        conversation.logged_in(&cx, &mut out);
        let suspended = conversation.suspend().expect("it can be resumed");
        Parked { suspended, topics: Vec::new(), holder: HOLDER }
    }

    #[test]
    fn a_session_is_kept_for_its_time_and_resumed_once_by_its_holder() {
        let parking = Parking::new(Capacity { entries_max: 9, bytes_max: usize::MAX });
        let id = parked(1).suspended.id().to_owned();
        parking.park(7, AppId(1), parked(1), Timestamp(0), MINUTE);
        let topics = |device, id: &str| parking.topics(device, id, Framing::Stream, Timestamp(1));
        assert_eq!((topics(7, &id), topics(8, &id), topics(7, "another")), (Some(Vec::new()), None, None));
        assert_eq!(parking.topics(7, &id, Framing::WebSocket, Timestamp(1)), None);
        assert!(parking.take(8, &id, HOLDER, Timestamp(1)).is_none(), "another device's");
        assert!(parking.take(7, "another", HOLDER, Timestamp(1)).is_none());
        for other in [
            Holder { user_key: 4, ..HOLDER },
            Holder { token_version: 2, ..HOLDER },
            Holder { num: DeviceNum(9), ..HOLDER },
        ] {
            assert!(!parking.is_held_by(7, &id, other));
            assert!(parking.take(7, &id, other, Timestamp(1)).is_none(), "{other:?}");
        }
        assert!(parking.is_held_by(7, &id, HOLDER));
        assert!(parking.take(7, &id, HOLDER, Timestamp(59_999)).is_some());
        assert!(parking.take(7, &id, HOLDER, Timestamp(59_999)).is_none(), "once");
        parking.park(7, AppId(1), parked(1), Timestamp(0), MINUTE);
        assert_eq!((parking.expire(Timestamp(59_999)).0, parking.expire(Timestamp(60_000))), (1, (0, 0)));
    }

    #[test]
    fn a_device_has_one_parked_session() {
        let parking = Parking::new(Capacity { entries_max: 9, bytes_max: usize::MAX });
        for number in 0..3 {
            assert_eq!(parking.park(7, AppId(1), parked(number), Timestamp(0), MINUTE), 0);
        }
        assert_eq!(parking.expire(Timestamp(0)).0, 1);
        parking.forget(7);
        assert_eq!(parking.expire(Timestamp(0)), (0, 0));
    }
}
