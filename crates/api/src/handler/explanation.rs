//! Explains why a device received a notification or not: whether the notification was for the device (`target`), what
//! was recorded ([`recorded`]), and what still waits. Live Activities have facts of their own ([`activity`]). Pure: the
//! caller reads the facts.

pub(crate) mod activity;
mod recorded;
mod target;

use noroshi_store::{CampaignState, PendingPush, PushStage, Trace, TracedCampaign, TracedTarget};
use noroshi_types::{Outcome, Timestamp, When};

use self::target::Targeting;
pub(crate) use self::target::{Segment, TargetedBy};

noroshi_types::names! {
    /// Why a notification did not arrive, or not yet.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub(crate) enum Reason {
        NotTargeted => "not_targeted",
        RegisteredLater => "registered_later",
        UserChangedLater => "user_changed_later",
        SubscribedLater => "subscribed_later",
        NotReached => "not_reached",
        NotRecorded => "not_recorded",
        Offline => "offline",
        Inactive => "inactive",
        Slow => "slow",
        Pending => "pending",
        Unacknowledged => "unacknowledged",
        Expired => "expired",
        Collapsed => "collapsed",
        Evicted => "evicted",
        Cancelled => "cancelled",
        HeldOut => "held_out",
        PushPending => "push_pending",
        Quota => "quota",
        NoToken => "no_token",
        InvalidToken => "invalid_token",
        SuspendedToken => "suspended_token",
        NotConfigured => "push_not_configured",
        PushRefused => "push_refused",
        PushExpired => "push_expired",
        Muted => "muted",
        ChannelOff => "channel_off",
        Quiet => "quiet",
        Capped => "capped",
        PushMuted => "push_muted",
        PushChannelOff => "push_channel_off",
        PushCapped => "push_capped",
        AwaitingToken => "awaiting_token",
        ExpiredToken => "expired_token",
        NextState => "next_state",
        Ended => "ended",
        PushServicePaused => "push_service_paused",
    }
}

/// What is known apart from the trace.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Present {
    pub now: Timestamp,
    pub is_connected: bool,
    /// The outcome with which the device's preferences keep it from the connection now.
    pub suppressed: Option<Outcome>,
    /// The app's pushes wait for its quota.
    pub waits_for_quota: bool,
    pub segment: Segment,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Explanation {
    pub targeted_by: TargetedBy,
    /// One sentence about `targeted_by`.
    pub targeting: String,
    /// `None`: it arrived, or nothing is known that kept it from arriving.
    pub reason: Option<Reason>,
    pub push: Option<PendingPush>,
    /// What became of it.
    pub summary: String,
}

/// A sentence, and why the notification did not arrive.
type Sentence = (String, Option<Reason>);

pub(crate) fn explain(trace: &Trace, present: Present) -> Explanation {
    let Targeting { by, sentence: targeting, missed } = target::targeting(trace, present.segment);
    let (mut summary, mut reason) = match recorded::recorded(trace, present) {
        Some(sentence) => sentence,
        None => match missed {
            Some(missed) => (targeting.clone(), Some(missed)),
            None => unrecorded(trace, present),
        },
    };
    let push = trace.push.filter(|_| trace.steps.iter().all(|step| step.outcome != Outcome::Acked));
    if let Some(push) = &push {
        let waiting = match &trace.target {
            TracedTarget::Campaign(campaign) => of_campaign(campaign, push, present),
            _ => waiting(push, present),
        };
        summary = format!("{summary} {waiting}").trim_start().to_owned();
        let is_due = push.due_at <= present.now && push.stage == PushStage::Queued;
        if is_due && present.waits_for_quota {
            reason = Some(Reason::Quota);
        }
    }
    Explanation { targeted_by: by, targeting, reason, push, summary }
}

/// Nothing is recorded for a device that the notification was for.
fn unrecorded(trace: &Trace, present: Present) -> Sentence {
    let notification = &trace.notification;
    let because = |sentence: &str, reason| (sentence.to_owned(), Some(reason));
    if notification.is_cancelled {
        return because("It was cancelled before the device received it.", Reason::Cancelled);
    }
    if let TracedTarget::Campaign(campaign) = &trace.target {
        return match trace.push {
            Some(_) => (String::new(), Some(Reason::PushPending)),
            None => target::not_reached(campaign.state),
        };
    }
    let is_stored = notification.when == When::Stored && notification.expires_at > notification.sent_at;
    if !is_stored {
        return because(
            "No write to the device is recorded: it was not connected, and the policy stores nothing for offline \
             devices.",
            Reason::Offline,
        );
    }
    let (TracedTarget::Topic { subscription, .. } | TracedTarget::Everyone { subscription }) = &trace.target
    else {
        return because(
            "No outcome is recorded, although it was for the device: a busy store omits entries of traces.",
            Reason::NotRecorded,
        );
    };
    match subscription {
        Some(subscribed) if subscribed.is_past => {
            let or = if subscribed.since.is_none() { ", or subscribed later" } else { "" };
            (
                format!(
                    "The device's position in the topic is past it: the device acknowledged it or a later message of the topic{or}."
                ),
                None,
            )
        }
        _ if notification.is_replaced && notification.has_collapse_key => because(
            "A newer notification with the same collapse key replaced it before the device acknowledged it.",
            Reason::Collapsed,
        ),
        _ if notification.is_replaced => {
            because("Newer messages pushed it out of the topic's full log.", Reason::Evicted)
        }
        _ if notification.expires_at <= present.now => {
            because("Its ttl ended before the device acknowledged it.", Reason::Expired)
        }
        _ if present.suppressed.is_some() => {
            let (sentence, reason) =
                recorded::suppressed(false, &|outcome| present.suppressed == Some(outcome))
                    .unwrap_or(("", None));
            (sentence.to_owned(), reason)
        }
        _ if present.is_connected => because(
            "It is in the topic's log; the device is connected, but no write to it is recorded yet.",
            Reason::Pending,
        ),
        _ => because("It is in the topic's log until the device connects.", Reason::Offline),
    }
}

/// The push work of a campaign that waits: pushes, or a batch that is published as a notification.
fn of_campaign(campaign: &TracedCampaign, push: &PendingPush, present: Present) -> String {
    let is_due = push.due_at <= present.now;
    match (push.stage, campaign.state) {
        (PushStage::Queued, CampaignState::Paused) => {
            "The campaign is paused and has not sent it yet.".to_owned()
        }
        (PushStage::Queued, _) if !is_due => format!("The campaign sends it at {}.", push.due_at),
        (PushStage::Queued, _) if !present.waits_for_quota => {
            format!("The campaign has been due to send it since {}; it waits for a sender.", push.due_at)
        }
        _ => waiting(push, present),
    }
}

/// The push work that waits.
fn waiting(push: &PendingPush, present: Present) -> String {
    let is_due = push.due_at <= present.now;
    match push.stage {
        PushStage::Taken { since: Some(since) } => {
            format!("A sender took its push at {since}; the push service has not answered yet.")
        }
        PushStage::Taken { since: None } => {
            "A sender has its push; the push service has not answered yet.".to_owned()
        }
        PushStage::Queued if !is_due => format!("A push is due at {}.", push.due_at),
        PushStage::Queued if present.waits_for_quota => format!(
            "A push has been due since {}; it waits because the app has used up its quota of pushes.",
            push.due_at
        ),
        PushStage::Queued => format!("A push has been due since {}; it waits for a sender.", push.due_at),
        PushStage::Collected if !is_due => format!("A push is due at {}.", push.due_at),
        PushStage::Collected => format!(
            "A push has been due since {}; its devices are still being collected, and this one comes later.",
            push.due_at
        ),
    }
}

#[cfg(test)]
mod tests;
