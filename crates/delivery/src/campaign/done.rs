//! Which outcomes mean that a campaign is done with a recipient.
//!
//! `progress` and `report` count with it, so that both agree. Pure.

use noroshi_types::{Outcome, When};

use crate::campaign::plan::{BAD_LINE, MISSING_VARIABLE, NO_CONTENT, NOT_UPLOADED};

/// The reason for devices that were never put into a batch because their token is suspended.
pub(crate) const SET_ASIDE: &str = "set_aside";

/// The reason for devices that had a token when they were put into a batch, and none when it was sent. Devices without
/// this reason were never in a batch, or come from an older version, which drew a variant before it looked.
pub(crate) const TOKEN_LOST: &str = "token_lost";

/// How many recipients are done. Each counts once: by the outcome that ends the work of its batch or, if batches are
/// published as notifications, by the outcome that every device gets.
pub(crate) fn done(counts: &[(Outcome, String, u64)], when: Option<When>) -> u64 {
    let ends = |outcome: Outcome, reason: &str| match when {
        _ if outcome == Outcome::HeldOut => true,
        None => is_push_end(outcome, reason),
        Some(_) if outcome == Outcome::PushRefused => {
            matches!(reason, MISSING_VARIABLE | NO_CONTENT | BAD_LINE | NOT_UPLOADED)
        }
        // Deleted since it was put into the batch.
        Some(_) if outcome == Outcome::Unknown => true,
        // Devices that mute its category are left out when it is accepted.
        Some(When::Stored) => matches!(outcome, Outcome::Kept | Outcome::Muted),
        Some(When::Active | When::Connected) => {
            let suppressed =
                matches!(outcome, Outcome::Muted | Outcome::ChannelOff | Outcome::Quiet | Outcome::Capped);
            suppressed
                || matches!(outcome, Outcome::Written | Outcome::Offline | Outcome::Inactive | Outcome::Slow)
        }
    };
    counts.iter().filter(|(outcome, reason, _)| ends(*outcome, reason)).map(|(_, _, count)| count).sum()
}

fn is_push_end(outcome: Outcome, reason: &str) -> bool {
    match outcome {
        Outcome::NoPushToken => reason == TOKEN_LOST,
        Outcome::PushTokenSuspect => reason != SET_ASIDE,
        Outcome::Pushed
        | Outcome::PushRefused
        | Outcome::PushTokenGone
        | Outcome::PushUnconfigured
        | Outcome::PushNotNeeded
        | Outcome::PushMuted
        | Outcome::PushChannelOff
        | Outcome::PushCapped
        | Outcome::PushExpired
        | Outcome::Cancelled
        | Outcome::Unknown => true,
        _ => false,
    }
}
