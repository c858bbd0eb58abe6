//! Presence: whether the app of the device is in use.

/// What the device reports as its presence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PresenceMode {
    /// Active, but idle after [`Client::set_hidden`](crate::Client::set_hidden) for 10 seconds.
    #[default]
    Auto,
    /// In use.
    Active,
    /// Not in use.
    Idle,
}
