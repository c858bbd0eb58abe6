//! Accepting notifications: what follows from a request alone. The engines find the devices and write the rows.

use std::collections::BTreeMap;
use std::sync::Arc;

use noroshi_types::{
    Condition, DeviceNum, Lane, Message, Outcome, PushMode, PushService, Timestamp, Topic, When, limits,
};

use crate::{Accept, Accepted, Fallback, OutcomePart, RemovedMessages};

/// Whether rows in inboxes or a topic's log keep the message. With a ttl of 0 it is delivered now or never
/// (RFC 8030 §5.2).
pub(crate) fn is_stored(accept: &Accept) -> bool {
    accept.request.when == When::Stored && !accept.request.ttl.duration().is_zero()
}

/// An idempotency key that is used now is remembered until then.
pub(crate) fn key_expires_at(now: Timestamp) -> Timestamp {
    now.saturating_add(limits::IDEMPOTENCY_WINDOW)
}

impl Accepted {
    pub(crate) fn new(
        accept: &Accept,
        message: Message,
        parts: Vec<OutcomePart>,
        departed: RemovedMessages,
    ) -> Self {
        let targets = accept.request.target.named_count();
        let message = Arc::new(message);
        Self { message, targets, parts, departed, item_users: Vec::new(), replayed: false }
    }

    /// The answer to a repeated request. The same body names the same targets.
    pub(crate) fn replay(accept: &Accept, message: Arc<Message>) -> Self {
        let targets = accept.request.target.named_count();
        let departed = RemovedMessages::default();
        Self { message, targets, parts: Vec::new(), departed, item_users: Vec::new(), replayed: true }
    }
}

/// Which devices a condition selects, by a bit for each of its topics that the device subscribes to. At most 5 topics
/// (`types::limits::CONDITION_TOPICS_MAX`), so at most 32 entries.
pub(crate) struct TruthTable(Vec<bool>);

impl TruthTable {
    pub(crate) fn of(condition: &Condition) -> Self {
        let topics = condition.topics();
        let holds = |bits: u32| {
            let subscribed =
                |topic: &Topic| topics.binary_search(&topic).is_ok_and(|bit| bits & (1 << bit) != 0);
            condition.matches(subscribed)
        };
        Self((0..1 << topics.len()).map(holds).collect())
    }

    pub(crate) fn holds(&self, bits: u32) -> bool {
        self.0.get(bits as usize).copied().unwrap_or(false)
    }
}

/// The push work that a request asks for.
pub(crate) struct PushPlan {
    pub lane: Lane,
    pub due_at: Timestamp,
    pub fallback: Fallback,
}

impl PushPlan {
    /// `None` for a request without push.
    pub(crate) fn of(accept: &Accept) -> Option<Self> {
        let request = &accept.request;
        let due_at = match request.push.mode {
            PushMode::Never => return None,
            PushMode::Always => accept.now,
            PushMode::Fallback => {
                accept.now.saturating_add(request.push.after).min(request.expires_at(accept.now))
            }
        };
        let lane = accept.campaign.map_or(Lane::Direct, |of| of.lane);
        Some(Self { lane, due_at, fallback: Fallback::of(request) })
    }
}

/// Devices by push service, and those that no push can reach, by the reason.
pub(crate) type ByService = (BTreeMap<PushService, Vec<DeviceNum>>, Vec<(Outcome, Vec<DeviceNum>)>);

/// Takes each device with the code of its push service and whether its token is suspect.
pub(crate) fn by_service(devices: impl Iterator<Item = (DeviceNum, Option<u8>, bool)>) -> ByService {
    let mut reachable: BTreeMap<PushService, Vec<DeviceNum>> = BTreeMap::new();
    let (mut without, mut suspect) = (Vec::new(), Vec::new());
    for (device, service, is_suspect) in devices {
        match service.and_then(PushService::from_code) {
            Some(service) if !is_suspect => reachable.entry(service).or_default().push(device),
            _ if service.is_some() && is_suspect => suspect.push(device),
            _ => without.push(device),
        }
    }
    let unreachable = [(Outcome::NoPushToken, without), (Outcome::PushTokenSuspect, suspect)];
    (reachable, unreachable.into_iter().filter(|(_, devices)| !devices.is_empty()).collect())
}
