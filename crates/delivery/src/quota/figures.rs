//! What a node counts for each app besides the use of its quotas: the figures that people with a role in the app see.

use noroshi_types::AppId;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Connections whose token was verified.
    LogIns,
    Publishes,
    /// Notifications written to connections.
    Deliveries,
    PushesAccepted,
    PushesRefused,
}

impl Counted {
    pub const COUNT: usize = 5;
}

/// The figures of one app on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppFigures {
    pub app: AppId,
    /// Connections now.
    pub connections: u64,
    /// By [`Counted`].
    pub counted: [u64; Counted::COUNT],
    /// Requests refused because of quotas.
    pub refused: u64,
}

impl AppFigures {
    pub fn counted(&self, what: Counted) -> u64 {
        self.counted[what as usize]
    }
}
