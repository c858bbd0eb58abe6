//! What became of a notification on one device.

/// One step of a notification on a device. The trace of a device is the list of these with their
/// times; the counts of a notification are their sums. Values are the store's and never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Outcome {
    /// Kept in the device's inbox.
    Kept = 1,
    /// Written to the device's connection.
    Written = 2,
    /// Confirmed by the device; its inbox row is gone.
    Acked = 3,
    /// Not connected, and the policy keeps nothing for who is away.
    Offline = 4,
    /// Connected but not in use, and the policy is `active`.
    Inactive = 5,
    /// Dropped because the connection did not take what was sent before.
    Slow = 6,
    /// The ttl ended before the device confirmed it.
    Expired = 7,
    /// Replaced by a newer notification with the same collapse key.
    Collapsed = 8,
    /// Cancelled before the device confirmed it.
    Cancelled = 9,
    /// Pushed out of a full inbox by newer notifications.
    Evicted = 10,
    /// No such user or device.
    Unknown = 11,
    /// A push service was asked for, and none is configured.
    PushUnconfigured = 12,
    /// A push service took it.
    Pushed = 13,
    /// A push service refused it for good; the reason is recorded with it.
    PushRefused = 14,
    /// The push service says that the token is gone; it was removed.
    PushTokenGone = 15,
    /// The push service says that the token belongs elsewhere; it is set aside until it is registered anew.
    PushTokenSuspect = 16,
    /// Push was asked for, and the device has no push token.
    NoPushToken = 17,
    /// The device confirmed in time: no push was needed.
    PushNotNeeded = 18,
    /// The ttl ended before a push service took it.
    PushExpired = 19,
    /// Its user opened it on the device, which says nothing of whether the device confirmed it.
    Opened = 20,
    /// Of a variant of a campaign to which nothing is sent.
    HeldOut = 21,
}

impl Outcome {
    pub const ALL: [Outcome; 21] = [
        Outcome::Kept,
        Outcome::Written,
        Outcome::Acked,
        Outcome::Offline,
        Outcome::Inactive,
        Outcome::Slow,
        Outcome::Expired,
        Outcome::Collapsed,
        Outcome::Cancelled,
        Outcome::Evicted,
        Outcome::Unknown,
        Outcome::PushUnconfigured,
        Outcome::Pushed,
        Outcome::PushRefused,
        Outcome::PushTokenGone,
        Outcome::PushTokenSuspect,
        Outcome::NoPushToken,
        Outcome::PushNotNeeded,
        Outcome::PushExpired,
        Outcome::Opened,
        Outcome::HeldOut,
    ];

    /// The name in the API, in metrics and in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Kept => "kept",
            Outcome::Written => "written",
            Outcome::Acked => "acked",
            Outcome::Offline => "offline",
            Outcome::Inactive => "inactive",
            Outcome::Slow => "slow",
            Outcome::Expired => "expired",
            Outcome::Collapsed => "collapsed",
            Outcome::Cancelled => "cancelled",
            Outcome::Evicted => "evicted",
            Outcome::Unknown => "unknown",
            Outcome::PushUnconfigured => "push_not_configured",
            Outcome::Pushed => "pushed",
            Outcome::PushRefused => "push_refused",
            Outcome::PushTokenGone => "push_token_gone",
            Outcome::PushTokenSuspect => "push_token_suspect",
            Outcome::NoPushToken => "no_push_token",
            Outcome::PushNotNeeded => "push_not_needed",
            Outcome::PushExpired => "push_expired",
            Outcome::Opened => "opened",
            Outcome::HeldOut => "held_out",
        }
    }

    /// One sentence for an operator who asks why.
    pub fn explain(self) -> &'static str {
        match self {
            Outcome::Kept => "kept in the device's inbox until it confirms",
            Outcome::Written => "written to the device's connection",
            Outcome::Acked => "confirmed by the device",
            Outcome::Offline => "the device was not connected and the policy keeps nothing for who is away",
            Outcome::Inactive => "the device was connected but not in use, and the policy is \"active\"",
            Outcome::Slow => "dropped: the connection had not taken what was sent before",
            Outcome::Expired => "the ttl ended before the device confirmed it",
            Outcome::Collapsed => "replaced by a newer notification with the same collapse key",
            Outcome::Cancelled => "cancelled before the device confirmed it",
            Outcome::Evicted => "pushed out of the device's full inbox by newer notifications",
            Outcome::Unknown => "no such user or device",
            Outcome::PushUnconfigured => "a push service was asked for, and the app has no credential for it",
            Outcome::Pushed => "the push service took it",
            Outcome::PushRefused => "the push service refused it for good",
            Outcome::PushTokenGone => "the push service says that the device's token is gone; it was removed",
            Outcome::PushTokenSuspect => {
                "the push service says that the device's token belongs elsewhere; it is set aside"
            }
            Outcome::NoPushToken => "push was asked for, and the device has no push token",
            Outcome::PushNotNeeded => "the device confirmed in time: no push was needed",
            Outcome::PushExpired => "the ttl ended before the push service took it",
            Outcome::Opened => "opened by its user on the device",
            Outcome::HeldOut => "held out: the device is of a variant to which the campaign sends nothing",
        }
    }

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| *outcome as u8 == code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_read_back() {
        for outcome in Outcome::ALL {
            assert_eq!(Outcome::from_code(outcome as u8), Some(outcome));
        }
        assert_eq!(Outcome::from_code(0), None);
    }
}
