//! Broadcast channels of APNs: one request to a channel updates the Live Activities of all devices that subscribe to it.
//!
//! The payload is rendered when the broadcast is accepted (`push::apns`); here it is opaque.

use crate::JsonText;

crate::names! {
    /// What Apple keeps for devices that are offline. The numbers are Apple's and stored; the names are those in the API.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub enum StoragePolicy {
        /// Nothing: a broadcast reaches devices that are online.
        #[default]
        Nothing = 0 => "none",
        /// The last broadcast, until it expires.
        Latest = 1 => "latest",
    }
}

crate::names! {
    /// What became of a broadcast. The numbers are stored and never change.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum BroadcastState {
        /// It waits for its turn, for a retry or for Apple's answer.
        Waiting = 1 => "waiting",
        /// Apple accepted it.
        Sent = 2 => "sent",
        /// Apple rejected it for good.
        Refused = 3 => "refused",
        /// Its time to live ended before Apple accepted it.
        Expired = 4 => "expired",
        /// A newer broadcast of its channel replaced it before it was sent.
        Replaced = 5 => "replaced",
        /// Its notification was cancelled, or its channel was deleted.
        Cancelled = 6 => "cancelled",
    }
}

/// What is sent to a channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broadcast {
    /// The body of the request to Apple.
    pub payload: JsonText,
    /// `apns-priority`: 1, 5 or 10.
    pub priority: u8,
    /// A newer broadcast of the channel replaces it while it waits.
    pub replaceable: bool,
}
