//! The kinds of long-lived threads, and what the node does when one of them panics or stalls.
//!
//! Invariant: every thread that lives as long as the node has a kind. A thread that serves one request and reports its
//! own failure (a CPU profile) has none.

/// The job of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Holds connections (`gateway`).
    Shard,
    /// Accepts connections (`gateway`).
    Acceptor,
    /// Verifies signatures of tokens.
    Verifier,
    /// Writes to SQLite (`store`).
    StoreWriter,
    /// Reads from SQLite (`store`).
    StoreReader,
    /// A task of the PostgreSQL store.
    StoreTask,
    /// Reads the rings of the event log (`events`).
    EventsCollector,
    /// Feeds one sink of the event log.
    EventsSink,
    /// Compresses closed event files.
    EventsArchive,
    /// A worker of the async runtime (API, push services, everything else that is async).
    Runtime,
    /// Serves the admin address.
    Admin,
    /// A background task of the node (`node::tasks`).
    Task,
    /// Any thread that is not registered.
    Other,
}

/// How the node reacts to a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// The node cannot keep its promises: it drains and exits.
    Exit,
    /// The node continues; logs and metrics report the failure.
    Report,
}

impl Kind {
    pub const ALL: [Kind; 13] = [
        Kind::Shard,
        Kind::Acceptor,
        Kind::Verifier,
        Kind::StoreWriter,
        Kind::StoreReader,
        Kind::StoreTask,
        Kind::EventsCollector,
        Kind::EventsSink,
        Kind::EventsArchive,
        Kind::Runtime,
        Kind::Admin,
        Kind::Task,
        Kind::Other,
    ];

    /// The value of the metric label.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Shard => "shard",
            Kind::Acceptor => "acceptor",
            Kind::Verifier => "verifier",
            Kind::StoreWriter => "store_writer",
            Kind::StoreReader => "store_reader",
            Kind::StoreTask => "store_task",
            Kind::EventsCollector => "events_collector",
            Kind::EventsSink => "events_sink",
            Kind::EventsArchive => "events_archive",
            Kind::Runtime => "runtime",
            Kind::Admin => "admin",
            Kind::Task => "task",
            Kind::Other => "other",
        }
    }

    /// When the thread panics, or ends before it should.
    pub const fn on_end(self) -> OnFailure {
        match self {
            // Closed files stay as they are; the next start compresses them.
            Kind::EventsArchive | Kind::Other => OnFailure::Report,
            _ => OnFailure::Exit,
        }
    }

    /// When one piece of work takes too long.
    pub const fn on_stall(self) -> OnFailure {
        match self {
            // A sink depends on a disk or a service outside the node. No request waits for its events, and a restart
            // would not repair the disk.
            Kind::EventsSink | Kind::EventsArchive | Kind::Other => OnFailure::Report,
            _ => OnFailure::Exit,
        }
    }
}
