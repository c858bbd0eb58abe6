//! What one recipient of a batch gets: a push, or an outcome without one.
//!
//! Checks token, quiet hours, variant and expiry, and renders the content. Pure: `batch` reads the recipient and sends.

use std::sync::Arc;

use noroshi_push::{Content, Recipient};
use noroshi_store::{Batch, Counted, Fallback, PushRecipient, Work};
use noroshi_types::{
    Category, Channel, DeviceNum, Outcome, PushToken, Suppressed, Timestamp, Topic, TraceContext, UserId,
};
use ring::digest;

use super::settlement::{Sent, Settlement};
use crate::campaign::Audience;
use crate::campaign::done::TOKEN_LOST;
use crate::campaign::plan::Plan;

/// Why a push expired that waited for the end of quiet hours.
const QUIET_HOURS: &str = "quiet_hours";

/// The source of the content.
pub(super) enum Source {
    Notification(NotificationSource),
    /// With the category of its message.
    Campaign(Arc<Plan>, Option<Category>),
}

pub(super) struct NotificationSource {
    pub(super) content: Arc<Content>,
    /// Its ttl is 0.
    pub(super) once: bool,
    pub(super) sent_at: Timestamp,
    pub(super) trace: Option<TraceContext>,
    pub(super) names_recipients: bool,
    pub(super) fallback: Fallback,
    pub(super) topic: Option<Topic>,
    pub(super) category: Option<Category>,
}

impl Source {
    /// Whether a request named the recipients.
    pub(super) fn names_recipients(&self) -> bool {
        matches!(self, Source::Notification(source) if source.names_recipients)
    }

    /// The trace that the work belongs to.
    pub(super) fn trace(&self) -> Option<TraceContext> {
        match self {
            Source::Notification(source) => source.trace,
            Source::Campaign(plan, _) => plan.spec.trace,
        }
    }

    fn category(&self) -> Option<&Category> {
        match self {
            Source::Notification(source) => source.category.as_ref(),
            Source::Campaign(_, category) => category.as_ref(),
        }
    }

    fn topic(&self) -> Option<&Topic> {
        match self {
            Source::Notification(source) => source.topic.as_ref(),
            Source::Campaign(plan, _) => match &plan.spec.audience {
                Audience::Topic(topic) => Some(topic),
                _ => None,
            },
        }
    }

    fn expires_at(&self, recipient: &PushRecipient) -> Timestamp {
        match self {
            Source::Notification(source) => source.content.fields().expires_at,
            Source::Campaign(plan, _) => plan.expires_at(&recipient.attributes),
        }
    }

    /// What decides after quiet hours whether a device still needs the push.
    fn fallback(&self) -> Fallback {
        match self {
            Source::Notification(source) => source.fallback,
            Source::Campaign(..) => Fallback::Settled,
        }
    }
}

/// A push for one recipient.
pub(super) struct DuePush {
    pub(super) token: PushToken,
    /// If requests to the push service name it.
    pub(super) recipient: Option<Recipient>,
    pub(super) content: Arc<Content>,
    /// The user, if the content counts the user's unread items.
    pub(super) badge_of: Option<UserId>,
    /// The trace context for the push service.
    pub(super) trace: Option<TraceContext>,
    /// If the device's preferences cap the category.
    pub(super) cap: Option<Counted>,
}

/// The push for a recipient. Without one, adds the outcome to `settlement`.
pub(super) fn prepare(
    settlement: &mut Settlement,
    batch: &Batch,
    source: &Source,
    recipient: PushRecipient,
    now: Timestamp,
) -> Option<(Sent, DuePush)> {
    let device = recipient.num;
    if recipient.suspect {
        settlement.part(Outcome::PushTokenSuspect, None, device);
        return None;
    }
    if recipient.token.is_none() || recipient.token_expires_at.is_some_and(|end| end <= now) {
        settlement.part(Outcome::NoPushToken, Some(TOKEN_LOST), device);
        return None;
    }
    if let Some(preferences) = &recipient.preferences {
        if let Some(why) = preferences.suppresses(Channel::Push, source.category(), source.topic()) {
            let outcome = match why {
                Suppressed::Muted => Outcome::PushMuted,
                Suppressed::ChannelOff => Outcome::PushChannelOff,
            };
            settlement.part(outcome, None, device);
            return None;
        }
        let timezone = recipient.attributes.timezone.as_deref();
        if let Some(until) = preferences.quiet_until(source.category(), now, timezone) {
            match until < source.expires_at(&recipient) {
                true => settlement.again_if(until, batch.attempt, source.fallback(), device),
                false => settlement.part(Outcome::PushExpired, Some(QUIET_HOURS), device),
            }
            return None;
        }
    }
    let mut variant = None;
    let mut quiet = false;
    if let Source::Campaign(plan, _) = source {
        // Before the draw: an abort during quiet hours must not change the proportions of the variants.
        if let Some(until) = plan.quiet_until(&recipient.attributes, now) {
            if until < plan.expires_at(&recipient.attributes) {
                settlement.again(until, batch.attempt, device);
                return None;
            }
            quiet = true;
        }
        variant = settlement.variant(device, || plan.draw(&recipient));
    }
    let (content, once) = match source {
        Source::Notification(source) => (source.content.clone(), source.once),
        Source::Campaign(plan, _) if plan.holds_out(variant) => {
            settlement.part(Outcome::HeldOut, None, device);
            return None;
        }
        Source::Campaign(plan, _) => match plan.content(&recipient, variant) {
            Ok(content) => (content, plan.spec.message.ttl.duration().is_zero()),
            Err(reason) => {
                settlement.part(Outcome::PushRefused, Some(reason), device);
                return None;
            }
        },
    };
    let expires_at = content.fields().expires_at;
    // A ttl of zero means now or never, and the first attempt is now.
    let first_of_once = once && batch.attempt == 0;
    if expires_at <= now && !first_of_once {
        settlement.part(Outcome::PushExpired, None, device);
        return None;
    }
    if quiet {
        settlement.part(Outcome::PushExpired, Some(QUIET_HOURS), device);
        return None;
    }
    let cap = cap(batch, source, &recipient);
    let token = recipient.token?;
    let badge_of = recipient.user.clone().filter(|_| content.counts_unread());
    let realm = (batch.app, token.service, token.environment);
    let named = noroshi_push::names_recipients(token.service);
    let named = named.then_some(Recipient { device: recipient.id, user: recipient.user });
    Some((
        Sent { device, token_at: recipient.token_at, realm, expires_at },
        DuePush { token, recipient: named, badge_of, content, trace: None, cap },
    ))
}

/// What counts the push, if the device's preferences cap its category.
fn cap(batch: &Batch, source: &Source, recipient: &PushRecipient) -> Option<Counted> {
    let (preferences, category) = (recipient.preferences.as_ref()?, source.category()?);
    let max = preferences.daily_max(Some(category))?;
    let id = match batch.work {
        Work::Notification(id) => *id.as_bytes(),
        Work::Campaign(id) => *id.as_bytes(),
    };
    let accepted_at = match source {
        Source::Notification(source) => source.sent_at,
        Source::Campaign(plan, _) => plan.due_at(&recipient.attributes),
    };
    let day = preferences.day(accepted_at, recipient.attributes.timezone.as_deref());
    Some(Counted { device: recipient.num, category: category.name.clone(), day, id, max })
}

/// The same id for every attempt: a UUIDv8 (RFC 9562 §5.8) of a hash of the work and the device.
pub(super) fn push_id(work: &[u8; 16], device: DeviceNum) -> uuid::Uuid {
    let mut text = [0; 24];
    text[..16].copy_from_slice(work);
    text[16..].copy_from_slice(&device.0.to_be_bytes());
    let hash = digest::digest(&digest::SHA256, &text);
    let mut id = [0; 16];
    id.copy_from_slice(&hash.as_ref()[..16]);
    uuid::Builder::from_custom_bytes(id).into_uuid()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use noroshi_store::{Finished, VariantNum};
    use noroshi_types::local_time::{LocalTime, QuietHours};
    use noroshi_types::{AppId, BatchId, CampaignId, Lane, PushService, Ttl, Urgency, UserId};

    use super::*;
    use crate::campaign::plan::tests::{MIDNIGHT, plan, recipient};
    use crate::campaign::trial::tests::trial;
    use crate::campaign::{Treatment, Trial};
    use crate::definition::experiment::tests::{experiment, label};

    fn batch(attempt: u32) -> Batch {
        Batch {
            id: BatchId(1),
            app: AppId(1),
            service: Some(PushService::Fcm),
            lane: Lane::Campaign,
            due_at: MIDNIGHT,
            attempt,
            work: Work::Campaign(CampaignId::from_bytes([1; 16])),
            campaign: None,
            variant: None,
            token: None,
            leased_until: MIDNIGHT,
            recipients: vec![DeviceNum(1)],
        }
    }

    /// The push, or the outcome of the one recipient.
    fn sorted(
        source: &Source,
        attempt: u32,
        recipient: PushRecipient,
        now: Timestamp,
    ) -> Result<Sent, Box<Finished>> {
        sorted_of(&batch(attempt), source, recipient, now)
    }

    fn sorted_of(
        batch: &Batch,
        source: &Source,
        recipient: PushRecipient,
        now: Timestamp,
    ) -> Result<Sent, Box<Finished>> {
        let mut settlement = Settlement::new(batch);
        let sent = prepare(&mut settlement, batch, source, recipient, now);
        sent.map(|(sent, _)| sent).ok_or_else(|| Box::new(settlement.finish(Vec::new())))
    }

    #[test]
    fn a_recipient_gets_a_push_or_an_outcome() {
        let hours = |hours: u64| MIDNIGHT.saturating_add(std::time::Duration::from_secs(hours * 3_600));
        let source = |urgency| {
            Source::Campaign(
                Arc::new(plan(|spec| {
                    let clock = |text| LocalTime::parse(text).expect("a time");
                    spec.quiet_hours = QuietHours::new(clock("22:00"), clock("07:00")).ok();
                    spec.message.urgency = urgency;
                })),
                None,
            )
        };
        let calm = source(Urgency::Normal);
        let refused =
            |finished: Result<Sent, Box<Finished>>| finished.expect_err("not sent").parts[0].outcome;
        assert!(sorted(&calm, 0, recipient(None, None), hours(8)).is_ok());
        assert!(sorted(&source(Urgency::High), 0, recipient(None, None), hours(23)).is_ok());
        // Quiet now: the same attempt again when the quiet hours end.
        let again = sorted(&calm, 3, recipient(None, None), hours(23)).expect_err("quiet").again;
        assert_eq!((again[0].due_at, again[0].attempt), (hours(31), 3));
        // Outcomes that do not depend on the time do not wait for the morning.
        for hour in [8, 23] {
            let no_token = PushRecipient { token: None, ..recipient(None, None) };
            assert_eq!(refused(sorted(&calm, 0, no_token, hours(hour))), Outcome::NoPushToken);
            let suspect = PushRecipient { suspect: true, ..recipient(None, None) };
            assert_eq!(refused(sorted(&calm, 0, suspect, hours(hour))), Outcome::PushTokenSuspect);
        }
        assert_eq!(refused(sorted(&calm, 0, recipient(None, None), hours(24 * 30))), Outcome::PushExpired);
    }

    #[test]
    fn no_variant_is_drawn_during_quiet_hours() {
        let hours = |hours: u64| MIDNIGHT.saturating_add(std::time::Duration::from_secs(hours * 3_600));
        let source = |ttl_hours: u64| {
            Source::Campaign(
                Arc::new(plan(|spec| {
                    let clock = |text| LocalTime::parse(text).expect("a time");
                    spec.quiet_hours = QuietHours::new(clock("22:00"), clock("07:00")).ok();
                    spec.message.ttl =
                        Ttl::new(std::time::Duration::from_secs(ttl_hours * 3_600)).expect("a ttl");
                    let treatments = BTreeMap::from([(label("control"), Treatment::HoldOut)]);
                    let mut definition = experiment();
                    definition.users.insert(UserId::parse("u0").expect("a user"), label("control"));
                    spec.trial = Some(Trial { treatments, definition: Some(definition), ..trial() });
                })),
                None,
            )
        };
        let (long, short) = (source(48), source(24));
        let one = PushRecipient { user: UserId::parse("u0").ok(), ..recipient(None, None) };
        let finished = sorted(&long, 0, one.clone(), hours(23)).expect_err("quiet");
        assert_eq!((finished.parts.len(), finished.again[0].variant), (0, None), "not held out yet");
        let fate = |batch: &Batch, source, one: &PushRecipient, hour| {
            let finished = sorted_of(batch, source, one.clone(), hours(hour)).expect_err("not sent");
            let part = &finished.parts[0];
            (part.outcome, part.reason, part.variant)
        };
        let held = Some(VariantNum(1));
        assert_eq!(fate(&batch(0), &long, &one, 8), (Outcome::HeldOut, None, held));
        assert_eq!(
            fate(&batch(0), &short, &one, 23),
            (Outcome::HeldOut, None, held),
            "decided at the last possible time"
        );
        let without = PushRecipient { token: None, ..one.clone() };
        let suspect = PushRecipient { suspect: true, ..one };
        for hour in [8, 23] {
            let lost = (Outcome::NoPushToken, Some(TOKEN_LOST), None);
            assert_eq!(fate(&batch(0), &long, &without, hour), lost);
            assert_eq!(fate(&batch(0), &long, &suspect, hour), (Outcome::PushTokenSuspect, None, None));
            // An earlier attempt drew a variant, so the device stays targeted.
            let again = Batch { variant: held, ..batch(1) };
            assert_eq!(fate(&again, &long, &without, hour), (Outcome::NoPushToken, Some(TOKEN_LOST), held));
        }
    }

    #[test]
    fn a_push_has_the_same_id_at_every_attempt() {
        let id = |work: u8, device| push_id(&[work; 16], DeviceNum(device));
        assert_eq!(id(1, 1), id(1, 1));
        assert_ne!(id(1, 1), id(1, 2));
        assert_ne!(id(1, 1), id(2, 1));
        assert_eq!(id(1, 1).get_version_num(), 8);
    }
}
