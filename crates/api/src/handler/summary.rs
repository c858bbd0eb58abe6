//! Explains in one or two sentences why a device received a notification or not: first connection and inbox, then push
//! services. Pure.

use noroshi_store::{Trace, TraceStep};
use noroshi_types::Outcome;

/// If there are several outcomes, describes the decisive one.
pub(crate) fn summary(trace: &Trace, connected: bool) -> String {
    let had = |outcome: Outcome| trace.steps.iter().any(|step| step.outcome == outcome);
    if had(Outcome::Acked) {
        return match had(Outcome::Opened) {
            true => "The device acknowledged it, and its user opened it.",
            false => "The device acknowledged it.",
        }
        .to_owned();
    }
    if had(Outcome::HeldOut) {
        return "The device has a variant to which the campaign sends nothing.".to_owned();
    }
    if had(Outcome::Opened) {
        return "Its user opened it on the device.".to_owned();
    }
    let live = live(trace, connected, &had);
    // Steps are in chronological order: the last attempt is the current state.
    match (live, trace.steps.iter().rev().find_map(push)) {
        (Some(live), Some(push)) => format!("{live} {push}"),
        (Some(live), None) => live.to_owned(),
        (None, Some(push)) => push,
        (None, None) => nothing(trace).to_owned(),
    }
}

/// None: the only steps are those of push services.
fn live(trace: &Trace, connected: bool, had: &impl Fn(Outcome) -> bool) -> Option<&'static str> {
    let ended = [
        (Outcome::Cancelled, "It was cancelled before the device acknowledged it."),
        (
            Outcome::Collapsed,
            "A newer notification with the same collapse key replaced it before the device acknowledged it.",
        ),
        (Outcome::Evicted, "It was evicted from the device's full inbox by newer notifications."),
        (Outcome::Expired, "Its ttl ended before the device acknowledged it."),
    ];
    if let Some((_, sentence)) = ended.into_iter().find(|(outcome, _)| had(*outcome)) {
        return Some(sentence);
    }
    Some(match (trace.in_inbox, had(Outcome::Written), connected) {
        (true, true, true) => {
            "It was written to the device's connection; the device has not acknowledged it yet."
        }
        (true, true, false) => {
            "It was written to a connection that closed before the device acknowledged it; it is still in the inbox."
        }
        (true, false, true) => {
            "It is in the device's inbox; the device is connected, but it was not written to the connection yet."
        }
        (true, false, false) => "It is in the device's inbox until the device connects.",
        (false, true, _) => {
            "It was written to the device's connection; no acknowledgement was requested or has arrived."
        }
        (false, false, _) if had(Outcome::Slow) => {
            "It was dropped because the device did not read earlier messages."
        }
        (false, false, _) if had(Outcome::Inactive) => {
            "The device was connected but not in use, and the policy is \"active\"."
        }
        (false, false, _) if had(Outcome::Offline) => {
            "The device was not connected, and the policy stores nothing for offline devices."
        }
        (false, false, _) => return None,
    })
}

/// The push service's part in this step; none if it had none.
fn push(step: &TraceStep) -> Option<String> {
    let because = step.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    Some(match step.outcome {
        Outcome::Pushed => "A push service accepted it for the device.".to_owned(),
        Outcome::PushRefused if matches!(step.reason.as_deref(), Some("sender_failed" | "sender_ended")) => {
            format!("It could not be sent to the push service after several attempts{because}.")
        }
        Outcome::PushRefused => format!("The push service rejected it permanently{because}."),
        Outcome::PushTokenGone => {
            format!(
                "The push service reported that the device's token is invalid{because}; the token was removed."
            )
        }
        Outcome::PushTokenSuspect => {
            format!(
                "The device's push token is suspended until it is registered again: the push service reported that it \
                 belongs to another environment, topic or sender{because}."
            )
        }
        Outcome::NoPushToken => "It was not pushed: the device has no push token.".to_owned(),
        Outcome::PushUnconfigured => {
            "It was not pushed: the app has no credential for the device's push service.".to_owned()
        }
        Outcome::PushNotNeeded => "No push was needed: the device acknowledged it in time.".to_owned(),
        Outcome::PushExpired => format!("Its ttl ended before a push service accepted it{because}."),
        _ => return None,
    })
}

fn nothing(trace: &Trace) -> &'static str {
    match trace.subscribed {
        true => "The device subscribes to its topic; no write to the device is recorded yet.",
        false => {
            "Nothing is recorded for this device: it was not a target, or it was offline and nothing was stored."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use noroshi_types::Timestamp;

    fn check(steps: &[(Outcome, Option<&str>)], in_inbox: bool, expected: &str) {
        let step = |(i, (outcome, reason)): (usize, &(Outcome, Option<&str>))| TraceStep {
            at: Timestamp(i as u64),
            outcome: *outcome,
            reason: reason.map(str::to_owned),
        };
        let steps = steps.iter().enumerate().map(step).collect();
        assert_eq!(summary(&Trace { steps, in_inbox, subscribed: false, trace: None }, false), expected);
    }

    #[test]
    fn the_summary_covers_inbox_and_push() {
        use Outcome::{Acked, Kept, NoPushToken, PushExpired, PushRefused, PushTokenGone, Pushed};
        let waits = "It is in the device's inbox until the device connects.";
        check(&[(Kept, None)], true, waits);
        check(
            &[(Kept, None), (Pushed, None)],
            true,
            &format!("{waits} A push service accepted it for the device."),
        );
        check(&[(Kept, None), (Pushed, None), (Acked, None)], false, "The device acknowledged it.");
        let opened = (Outcome::Opened, None);
        check(&[(Pushed, None), opened], false, "Its user opened it on the device.");
        check(
            &[(Kept, None), (Acked, None), opened],
            false,
            "The device acknowledged it, and its user opened it.",
        );
        check(
            &[(Kept, None), (PushRefused, Some("sender_ended"))],
            true,
            &format!(
                "{waits} It could not be sent to the push service after several attempts (sender_ended)."
            ),
        );
        check(
            &[(Kept, None), (PushRefused, Some("BadTopic"))],
            true,
            &format!("{waits} The push service rejected it permanently (BadTopic)."),
        );
        check(
            &[(PushTokenGone, Some("Unregistered"))],
            false,
            "The push service reported that the device's token is invalid (Unregistered); the token was removed.",
        );
        check(&[(NoPushToken, None)], false, "It was not pushed: the device has no push token.");
        check(
            &[(Kept, None), (PushExpired, Some("timeout")), (Outcome::Expired, None)],
            false,
            "Its ttl ended before the device acknowledged it. Its ttl ended before a push service accepted it (timeout).",
        );
    }

    #[test]
    fn every_push_outcome_has_a_sentence() {
        for outcome in Outcome::ALL {
            let sentence = summary(
                &Trace {
                    steps: vec![TraceStep { at: Timestamp(0), outcome, reason: None }],
                    in_inbox: false,
                    subscribed: false,
                    trace: None,
                },
                false,
            );
            // `Kept` and `Unknown` do not determine the current state.
            let is_undetermined = matches!(outcome, Outcome::Kept | Outcome::Unknown);
            assert_eq!(
                sentence.starts_with("Nothing is recorded"),
                is_undetermined,
                "{outcome:?}: {sentence}"
            );
        }
    }
}
