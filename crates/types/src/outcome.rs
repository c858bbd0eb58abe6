//! The outcomes of a notification on one device.

crate::names! {
    /// One step of a notification on a device. A device's trace lists these with their times; a notification's
    /// counts are their sums. The numbers are stored and never change; the names are those in the API, metrics and
    /// logs.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Outcome {
        /// Stored in the device's inbox.
        Kept = 1 => "kept",
        /// Written to the device's connection.
        Written = 2 => "written",
        /// Acknowledged by the device; its inbox row is gone.
        Acked = 3 => "acked",
        /// Not connected, and the policy does not store.
        Offline = 4 => "offline",
        /// Connected but idle, and the policy is `active`.
        Inactive = 5 => "inactive",
        /// Dropped because the connection, or in overload the node, was too slow.
        Slow = 6 => "slow",
        /// The ttl ended before the device acknowledged it.
        Expired = 7 => "expired",
        /// Replaced by a newer notification with the same collapse key.
        Collapsed = 8 => "collapsed",
        /// Cancelled before the device acknowledged it.
        Cancelled = 9 => "cancelled",
        /// Evicted from a full inbox by newer notifications.
        Evicted = 10 => "evicted",
        /// The user or device does not exist.
        Unknown = 11 => "unknown",
        /// Push was requested, but no push service is configured.
        PushUnconfigured = 12 => "push_not_configured",
        /// A push service accepted it.
        Pushed = 13 => "pushed",
        /// A push service rejected it permanently; the reason is recorded.
        PushRefused = 14 => "push_refused",
        /// The push service reported that the token no longer exists; it was removed.
        PushTokenGone = 15 => "push_token_gone",
        /// The push service reported that the token belongs elsewhere; it is suspended until it is registered
        /// again.
        PushTokenSuspect = 16 => "push_token_suspect",
        /// Push was requested, but the device has no push token.
        NoPushToken = 17 => "no_push_token",
        /// The device acknowledged it in time: no push was needed.
        PushNotNeeded = 18 => "push_not_needed",
        /// The ttl ended before a push service accepted it.
        PushExpired = 19 => "push_expired",
        /// The user opened it on the device, whether or not the device acknowledged it.
        Opened = 20 => "opened",
        /// The device's campaign variant sends nothing.
        HeldOut = 21 => "held_out",
        /// Preferences mute its topic or category: the device's connection does not get it.
        Muted = 22 => "muted",
        /// Preferences do not allow messages over the connection.
        ChannelOff = 23 => "channel_off",
        /// It is not stored, the device was idle, and it was in its quiet hours.
        Quiet = 24 => "quiet",
        /// The connection got as many of its category on this day as preferences allow.
        Capped = 25 => "capped",
        /// Preferences mute its topic or category: no push.
        PushMuted = 26 => "push_muted",
        /// Preferences do not allow pushes.
        PushChannelOff = 27 => "push_channel_off",
        /// As many of its category interrupted the device on this day as preferences allow: no push.
        PushCapped = 28 => "push_capped",
    }
}

impl Outcome {
    /// One sentence of explanation for operators.
    pub fn explain(self) -> &'static str {
        match self {
            Outcome::Kept => "stored in the device's inbox, to wait for its acknowledgement",
            Outcome::Written => "written to the device's connection",
            Outcome::Acked => "acknowledged by the device",
            Outcome::Offline => "the device was not connected and the policy does not store messages",
            Outcome::Inactive => "the device was connected but idle, and the policy is \"active\"",
            Outcome::Slow => "dropped: the connection was too slow, or the node was overloaded",
            Outcome::Expired => "the ttl ended before the device acknowledged it",
            Outcome::Collapsed => "replaced by a newer notification with the same collapse key",
            Outcome::Cancelled => "cancelled before the device acknowledged it",
            Outcome::Evicted => "evicted from the device's full inbox by newer notifications",
            Outcome::Unknown => "the user or device does not exist",
            Outcome::PushUnconfigured => {
                "push was requested, but the app has no credential for the push service"
            }
            Outcome::Pushed => "the push service accepted it",
            Outcome::PushRefused => "the push service rejected it permanently",
            Outcome::PushTokenGone => {
                "the push service reported that the device's token no longer exists; it was removed"
            }
            Outcome::PushTokenSuspect => {
                "the push service reported that the device's token belongs elsewhere; it is suspended"
            }
            Outcome::NoPushToken => "push was requested, but the device has no push token",
            Outcome::PushNotNeeded => "the device acknowledged it in time: no push was needed",
            Outcome::PushExpired => "the ttl ended before the push service accepted it",
            Outcome::Opened => "opened by the user on the device",
            Outcome::HeldOut => "held out: the device's variant receives nothing from the campaign",
            Outcome::Muted => "not delivered live: the preferences mute its topic or category",
            Outcome::ChannelOff => "not delivered live: the preferences do not allow live messages",
            Outcome::Quiet => "not delivered live: the device was idle and in its quiet hours",
            Outcome::Capped => "not delivered live: the daily cap of its category was reached",
            Outcome::PushMuted => "no push: the preferences mute its topic or category",
            Outcome::PushChannelOff => "no push: the preferences do not allow pushes",
            Outcome::PushCapped => "no push: the daily cap of its category was reached",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_round_trip() {
        for outcome in Outcome::ALL {
            assert_eq!(Outcome::from_code(outcome as u8), Some(outcome));
        }
        assert_eq!(Outcome::from_code(0), None);
    }
}
