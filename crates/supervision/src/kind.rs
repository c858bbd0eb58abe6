//! The kinds of long-lived threads, each with what the node does when one panics or stalls.
//!
//! Invariant: every thread that lives as long as the node has a kind. Threads that serve one command
//! and report their own failure (a CPU profile) are not listed.

/// What a thread is for.
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
    /// A worker of the runtime that serves the API, push services and everything else that is asynchronous.
    Runtime,
    /// Serves the admin address.
    Admin,
    /// A background task of the node (`node::tasks`).
    Task,
    /// Everything that was never registered.
    Other,
}

/// What the node does about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// The node cannot keep its promises: it drains and exits.
    Exit,
    /// The node works without it: logs and metrics report it.
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

    /// As metrics label it.
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

    /// When the thread works on one piece of work for too long.
    pub const fn on_stall(self) -> OnFailure {
        match self {
            // A sink stands for a disk or a service that is not the node's. Its events wait, and no request waits for
            // them; a restart does not mend that disk.
            Kind::EventsSink | Kind::EventsArchive | Kind::Other => OnFailure::Report,
            _ => OnFailure::Exit,
        }
    }
}
