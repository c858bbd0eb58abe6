//! Whether a device or user can receive messages now.

/// The presence of a connection; the presence of a user is the highest of its devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Presence {
    /// No connection.
    Offline,
    /// Connected but idle.
    Idle,
    /// Connected and in use; a new connection is active until it reports otherwise.
    Active,
}

impl Presence {
    pub fn as_str(self) -> &'static str {
        match self {
            Presence::Offline => "offline",
            Presence::Idle => "idle",
            Presence::Active => "active",
        }
    }
}
