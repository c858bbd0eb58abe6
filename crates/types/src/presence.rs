//! Whether a device or user can receive messages now.

crate::names! {
    /// The presence of a connection; the presence of a user is the highest of its devices.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Presence {
        /// No connection.
        Offline => "offline",
        /// Connected but idle.
        Idle => "idle",
        /// Connected and in use; a new connection is active until it reports otherwise.
        Active => "active",
    }
}
