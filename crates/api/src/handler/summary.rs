//! Why a device got a notification, or why not, in a sentence or two: first what became of it on its
//! connection and in its inbox, then what push services had to do with it. Pure.

use noroshi_store::{Trace, TraceStep};
use noroshi_types::Outcome;

/// Of several outcomes the one that counts is told.
pub(crate) fn summary(trace: &Trace, connected: bool) -> String {
    let had = |outcome: Outcome| trace.steps.iter().any(|step| step.outcome == outcome);
    if had(Outcome::Acked) {
        return match had(Outcome::Opened) {
            true => "The device confirmed it, and its user opened it.",
            false => "The device confirmed it.",
        }
        .to_owned();
    }
    if had(Outcome::HeldOut) {
        return "The device is of a variant to which the campaign sends nothing.".to_owned();
    }
    if had(Outcome::Opened) {
        return "Its user opened it on the device.".to_owned();
    }
    let live = live(trace, connected, &had);
    // Steps are in the order of time: the last attempt is how it is now.
    match (live, trace.steps.iter().rev().find_map(push)) {
        (Some(live), Some(push)) => format!("{live} {push}"),
        (Some(live), None) => live.to_owned(),
        (None, Some(push)) => push,
        (None, None) => nothing(trace).to_owned(),
    }
}

/// None: nothing was done but through push services.
fn live(trace: &Trace, connected: bool, had: &impl Fn(Outcome) -> bool) -> Option<&'static str> {
    let ended = [
        (Outcome::Cancelled, "It was cancelled before the device confirmed it."),
        (
            Outcome::Collapsed,
            "A newer notification with the same collapse key replaced it before the device confirmed it.",
        ),
        (Outcome::Evicted, "Newer notifications pushed it out of the device's full inbox."),
        (Outcome::Expired, "Its ttl ended before the device confirmed it."),
    ];
    if let Some((_, sentence)) = ended.into_iter().find(|(outcome, _)| had(*outcome)) {
        return Some(sentence);
    }
    Some(match (trace.in_inbox, had(Outcome::Written), connected) {
        (true, true, true) => {
            "It was written to the device's connection; the device has not confirmed it yet."
        }
        (true, true, false) => {
            "It was written to a connection that ended before the device confirmed it; it waits in the inbox."
        }
        (true, false, true) => {
            "It waits in the device's inbox; the device is connected and has not been written to yet."
        }
        (true, false, false) => "It waits in the device's inbox until the device connects.",
        (false, true, _) => {
            "It was written to the device's connection; no confirmation was asked for or has arrived."
        }
        (false, false, _) if had(Outcome::Slow) => {
            "It was dropped because the device had not taken what was sent to it before."
        }
        (false, false, _) if had(Outcome::Inactive) => {
            "The device was connected but not in use, and the policy is \"active\"."
        }
        (false, false, _) if had(Outcome::Offline) => {
            "The device was not connected, and the policy keeps nothing for who is away."
        }
        (false, false, _) => return None,
    })
}

/// What a push service had to do with it at this step; none if nothing.
fn push(step: &TraceStep) -> Option<String> {
    let because = step.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    Some(match step.outcome {
        Outcome::Pushed => "A push service took it for the device.".to_owned(),
        Outcome::PushRefused if matches!(step.reason.as_deref(), Some("sender_failed" | "sender_ended")) => {
            format!(
                "Nobody could send it to the push service: it was tried several times and set aside{because}."
            )
        }
        Outcome::PushRefused => format!("The push service refused it for good{because}."),
        Outcome::PushTokenGone => {
            format!("The push service said that the device's token is gone{because}; it was removed.")
        }
        Outcome::PushTokenSuspect => {
            format!(
                "The device's push token is set aside until it is registered anew: the push service said \
                 that it belongs elsewhere{because}."
            )
        }
        Outcome::NoPushToken => "It could not be pushed: the device has no push token.".to_owned(),
        Outcome::PushUnconfigured => {
            "It could not be pushed: the app has no credential for the device's push service.".to_owned()
        }
        Outcome::PushNotNeeded => "No push was needed: the device confirmed in time.".to_owned(),
        Outcome::PushExpired => format!("Its ttl ended before a push service took it{because}."),
        _ => return None,
    })
}

fn nothing(trace: &Trace) -> &'static str {
    match trace.subscribed {
        true => {
            "The device subscribes to its topic; nothing is recorded of it being written to the device yet."
        }
        false => {
            "Nothing is recorded for this device: it was not among the targets, or was away and nothing was kept."
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
    fn the_push_is_told_beside_the_inbox() {
        use Outcome::{Acked, Kept, NoPushToken, PushExpired, PushRefused, PushTokenGone, Pushed};
        let waits = "It waits in the device's inbox until the device connects.";
        check(&[(Kept, None)], true, waits);
        check(
            &[(Kept, None), (Pushed, None)],
            true,
            &format!("{waits} A push service took it for the device."),
        );
        check(&[(Kept, None), (Pushed, None), (Acked, None)], false, "The device confirmed it.");
        let opened = (Outcome::Opened, None);
        check(&[(Pushed, None), opened], false, "Its user opened it on the device.");
        check(
            &[(Kept, None), (Acked, None), opened],
            false,
            "The device confirmed it, and its user opened it.",
        );
        check(
            &[(Kept, None), (PushRefused, Some("sender_ended"))],
            true,
            &format!(
                "{waits} Nobody could send it to the push service: it was tried several times and set aside \
                 (sender_ended)."
            ),
        );
        check(
            &[(Kept, None), (PushRefused, Some("BadTopic"))],
            true,
            &format!("{waits} The push service refused it for good (BadTopic)."),
        );
        check(
            &[(PushTokenGone, Some("Unregistered"))],
            false,
            "The push service said that the device's token is gone (Unregistered); it was removed.",
        );
        check(&[(NoPushToken, None)], false, "It could not be pushed: the device has no push token.");
        check(
            &[(Kept, None), (PushExpired, Some("timeout")), (Outcome::Expired, None)],
            false,
            "Its ttl ended before the device confirmed it. Its ttl ended before a push service took it (timeout).",
        );
    }

    #[test]
    fn every_outcome_of_a_push_has_its_sentence() {
        for outcome in Outcome::ALL {
            let told = summary(
                &Trace {
                    steps: vec![TraceStep { at: Timestamp(0), outcome, reason: None }],
                    in_inbox: false,
                    subscribed: false,
                    trace: None,
                },
                false,
            );
            // `Kept` and `Unknown` alone say nothing of where it is now.
            let says_nothing = matches!(outcome, Outcome::Kept | Outcome::Unknown);
            assert_eq!(told.starts_with("Nothing is recorded"), says_nothing, "{outcome:?}: {told}");
        }
    }
}
