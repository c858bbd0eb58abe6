//! What the recorded steps of a device mean, in one or two sentences: first connection and inbox, then push services.

use noroshi_store::{Trace, TraceStep};
use noroshi_types::Outcome;

use super::{Present, Reason, Sentence};

/// If there are several outcomes, describes the decisive one. `None`: nothing is recorded that determines the state.
pub(super) fn recorded(trace: &Trace, present: Present) -> Option<Sentence> {
    let had = |outcome: Outcome| trace.steps.iter().any(|step| step.outcome == outcome);
    let arrived = |sentence: &str| Some((sentence.to_owned(), None));
    if had(Outcome::Acked) {
        return arrived(match had(Outcome::Opened) {
            true => "The device acknowledged it, and its user opened it.",
            false => "The device acknowledged it.",
        });
    }
    if had(Outcome::HeldOut) {
        let sentence = "The device has a variant to which the campaign sends nothing.";
        return Some((sentence.to_owned(), Some(Reason::HeldOut)));
    }
    if had(Outcome::Opened) {
        return arrived("Its user opened it on the device.");
    }
    let ended = ended(&had);
    let live = ended.or_else(|| live(trace, present, &had));
    // Steps are in chronological order: the last attempt is the current state.
    let last = trace.steps.iter().rev().find_map(|step| Some((step.outcome, push(step)?)));
    let (live, push) = match (live, last) {
        (Some((live, reason)), None) => return Some((live.to_owned(), reason)),
        (None, push) => return push.map(|(_, push)| push),
        (Some(live), Some(push)) => (live, push),
    };
    let ((sentence, reason), (outcome, (pushed, refused))) = (live, push);
    let reason = match outcome {
        Outcome::Pushed => None,
        _ if ended.is_some() => reason,
        _ => refused.or(reason),
    };
    Some((format!("{sentence} {pushed}"), reason))
}

/// It left the inbox, or was cancelled.
fn ended(had: &impl Fn(Outcome) -> bool) -> Option<(&'static str, Option<Reason>)> {
    let ended = [
        (Outcome::Cancelled, "It was cancelled before the device acknowledged it.", Reason::Cancelled),
        (
            Outcome::Collapsed,
            "A newer notification with the same collapse key replaced it before the device acknowledged it.",
            Reason::Collapsed,
        ),
        (
            Outcome::Evicted,
            "It was evicted from the device's full inbox by newer notifications.",
            Reason::Evicted,
        ),
        (Outcome::Expired, "Its ttl ended before the device acknowledged it.", Reason::Expired),
    ];
    let found = ended.into_iter().find(|(outcome, ..)| had(*outcome))?;
    Some((found.1, Some(found.2)))
}

/// Preferences kept it from the device's connection.
pub(super) fn suppressed(
    in_inbox: bool,
    had: &impl Fn(Outcome) -> bool,
) -> Option<(&'static str, Option<Reason>)> {
    let all = [
        (
            Outcome::Muted,
            "It was not delivered live: the preferences mute its topic or category.",
            "It is in the device's inbox, but is not delivered live: the preferences mute its topic or category.",
            Reason::Muted,
        ),
        (
            Outcome::ChannelOff,
            "It was not delivered live: the preferences do not allow live messages.",
            "It is in the device's inbox, but is not delivered live: the preferences do not allow live messages.",
            Reason::ChannelOff,
        ),
        (
            Outcome::Capped,
            "It was not delivered live: the device had as many notifications of the category on that day as the preferences \
             allow.",
            "It is in the device's inbox, but was not delivered live: the device had as many notifications of the category on \
             that day as the preferences allow.",
            Reason::Capped,
        ),
        (
            Outcome::Quiet,
            "It was not delivered live: the device was idle and in its quiet hours.",
            "It is in the device's inbox, but was not delivered live: the device was idle and in its quiet hours.",
            Reason::Quiet,
        ),
    ];
    let (_, gone, kept, reason) = all.into_iter().find(|(outcome, ..)| had(*outcome))?;
    Some((if in_inbox { kept } else { gone }, Some(reason)))
}

/// None: the only steps are those of push services.
fn live(
    trace: &Trace,
    present: Present,
    had: &impl Fn(Outcome) -> bool,
) -> Option<(&'static str, Option<Reason>)> {
    // What a log-in found in the inbox has no outcome.
    let is_pending = trace.in_inbox && present.is_connected;
    let was = |outcome| had(outcome) || is_pending && present.suppressed == Some(outcome);
    if let Some(suppressed) = suppressed(trace.in_inbox, &was).filter(|_| !had(Outcome::Written)) {
        return Some(suppressed);
    }
    let is_connected = present.is_connected;
    let (sentence, reason) = match (trace.in_inbox, had(Outcome::Written), is_connected) {
        (true, true, true) => (
            "It was written to the device's connection; the device has not acknowledged it yet.",
            Reason::Unacknowledged,
        ),
        (true, true, false) => (
            "It was written to a connection that closed before the device acknowledged it; it is still in the inbox.",
            Reason::Offline,
        ),
        (true, false, true) => (
            "It is in the device's inbox; the device is connected, but it was not written to the connection yet.",
            Reason::Pending,
        ),
        (true, false, false) => ("It is in the device's inbox until the device connects.", Reason::Offline),
        (false, true, _) => {
            let sentence =
                "It was written to the device's connection; no acknowledgement was requested or has arrived.";
            return Some((sentence, None));
        }
        (false, false, _) if had(Outcome::Slow) => {
            ("It was dropped because the device did not read earlier messages.", Reason::Slow)
        }
        (false, false, _) if had(Outcome::Inactive) => {
            ("The device was connected but not in use, and the policy is \"active\".", Reason::Inactive)
        }
        (false, false, _) if had(Outcome::Offline) => (
            "The device was not connected, and the policy stores nothing for offline devices.",
            Reason::Offline,
        ),
        (false, false, _) => return None,
    };
    Some((sentence, Some(reason)))
}

/// The push service's part in this step; none if it had none.
pub(super) fn push(step: &TraceStep) -> Option<Sentence> {
    let because = step.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let (sentence, reason) = match step.outcome {
        Outcome::Pushed => return Some(("A push service accepted it for the device.".to_owned(), None)),
        Outcome::PushNotNeeded => {
            return Some(("No push was needed: the device acknowledged it in time.".to_owned(), None));
        }
        Outcome::PushRefused if matches!(step.reason.as_deref(), Some("sender_failed" | "sender_ended")) => (
            format!("It could not be sent to the push service after several attempts{because}."),
            Reason::PushRefused,
        ),
        Outcome::PushRefused if step.reason.as_deref() == Some("quota_exceeded") => {
            ("It was not published: the app's inboxes were at their quota.".to_owned(), Reason::Quota)
        }
        Outcome::PushRefused => {
            (format!("The push service rejected it permanently{because}."), Reason::PushRefused)
        }
        Outcome::PushTokenGone => (
            format!(
                "The push service reported that the device's token is invalid{because}; the token was removed."
            ),
            Reason::InvalidToken,
        ),
        Outcome::PushTokenSuspect => (
            format!(
                "The device's push token is suspended until it is registered again: the push service reported that it \
                 belongs to another environment, topic or sender{because}."
            ),
            Reason::SuspendedToken,
        ),
        Outcome::NoPushToken => {
            ("It was not pushed: the device has no push token.".to_owned(), Reason::NoToken)
        }
        Outcome::PushUnconfigured => (
            "It was not pushed: the app has no credential for the device's push service.".to_owned(),
            Reason::NotConfigured,
        ),
        Outcome::PushMuted => {
            ("It was not pushed: the preferences mute its topic or category.".to_owned(), Reason::PushMuted)
        }
        Outcome::PushChannelOff => {
            ("It was not pushed: the preferences do not allow pushes.".to_owned(), Reason::PushChannelOff)
        }
        Outcome::PushCapped => (
            "It was not pushed: the device had as many notifications of the category on that day as the preferences \
             allow."
                .to_owned(),
            Reason::PushCapped,
        ),
        Outcome::PushExpired if step.reason.as_deref() == Some("quiet_hours") => {
            ("It was not pushed: its ttl ended in the device's quiet hours.".to_owned(), Reason::PushExpired)
        }
        Outcome::PushExpired => {
            (format!("Its ttl ended before a push service accepted it{because}."), Reason::PushExpired)
        }
        _ => return None,
    };
    Some((sentence, Some(reason)))
}
