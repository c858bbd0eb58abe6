//! All background tasks of a node, by kind. The only place that defines what happens when a task fails, and when it ends during
//! a drain.
//!
//! Invariant: every task has a [`TaskKind`]. Connections of the API are tracked separately ([`Tasks::connections`]): there are
//! many, and a failure affects only one.

use std::collections::HashMap;

use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The kinds of background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TaskKind {
    /// Acknowledgements and clean-up (`delivery`).
    Delivery,
    /// JWK sets of apps (`auth`).
    Auth,
    /// Accepts connections to the admin address.
    Admin,
    /// Reloads certificates on SIGHUP.
    Reload,
    /// Removes expired sessions of people, and old audit entries.
    Console,
    /// Writes the time series.
    Series,
    /// Keeps gauges current.
    Gauges,
    /// Publishes the state of this node to the others.
    Nodes,
    /// The lease, the directory and the bus.
    Cluster,
    /// Forwards to cells.
    Front,
    /// Reads notifications from a queue.
    Intake,
    /// Sends traces and metrics to a collector.
    Tracing,
    /// Pushes profiles.
    Profiling,
}

/// When in a drain a task ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// At once.
    First,
    /// After all connections closed, since they still create work for it.
    AfterConnections,
    /// At the end, since it reports the progress of the drain.
    Last,
}

/// What the node does when a task panics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// The node cannot work without it: it drains and exits with a failure code, and its supervisor restarts it.
    Drain,
    /// The node continues without it, and logs that.
    Continue,
}

impl TaskKind {
    pub fn name(self) -> &'static str {
        match self {
            TaskKind::Delivery => "delivery",
            TaskKind::Auth => "auth",
            TaskKind::Admin => "admin",
            TaskKind::Reload => "reload",
            TaskKind::Console => "console",
            TaskKind::Series => "series",
            TaskKind::Gauges => "gauges",
            TaskKind::Nodes => "nodes",
            TaskKind::Cluster => "cluster",
            TaskKind::Front => "front",
            TaskKind::Intake => "intake",
            TaskKind::Tracing => "tracing",
            TaskKind::Profiling => "profiling",
        }
    }

    pub fn on_drain(self) -> Phase {
        match self {
            TaskKind::Auth
            | TaskKind::Reload
            | TaskKind::Intake
            | TaskKind::Profiling
            | TaskKind::Console => Phase::First,
            // The cluster ends later, since it carries the remaining deliveries.
            TaskKind::Delivery | TaskKind::Front => Phase::AfterConnections,
            // They report the progress of the drain.
            TaskKind::Admin
            | TaskKind::Series
            | TaskKind::Gauges
            | TaskKind::Nodes
            | TaskKind::Cluster
            | TaskKind::Tracing => Phase::Last,
        }
    }

    pub fn on_failure(self) -> OnFailure {
        match self {
            // Without the admin address, health checks would fail anyway.
            TaskKind::Delivery
            | TaskKind::Auth
            | TaskKind::Admin
            | TaskKind::Cluster
            | TaskKind::Front
            | TaskKind::Intake => OnFailure::Drain,
            TaskKind::Reload
            | TaskKind::Console
            | TaskKind::Series
            | TaskKind::Gauges
            | TaskKind::Nodes
            | TaskKind::Tracing
            | TaskKind::Profiling => OnFailure::Continue,
        }
    }
}

/// The running tasks.
#[derive(Debug, Default)]
pub struct Tasks {
    running: JoinSet<()>,
    kinds: HashMap<Id, TaskKind>,
    first: CancellationToken,
    after_connections: CancellationToken,
    last: CancellationToken,
    /// Connections that the API serves.
    pub connections: TaskTracker,
}

impl Tasks {
    /// Starts a task. It receives the token of its phase, and ends soon after its cancellation.
    pub fn spawn<F>(&mut self, kind: TaskKind, work: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let work = work(self.phase(kind.on_drain()).clone());
        #[cfg(debug_assertions)]
        let work = with_faults(kind, work);
        let task = self.running.spawn(work);
        self.kinds.insert(task.id(), kind);
    }

    /// Cancelled when connections of the API must complete their current request and close.
    pub fn connections_end(&self) -> &CancellationToken {
        &self.first
    }

    fn phase(&self, phase: Phase) -> &CancellationToken {
        match phase {
            Phase::First => &self.first,
            Phase::AfterConnections => &self.after_connections,
            Phase::Last => &self.last,
        }
    }

    /// Resolves when a task fails that the node cannot work without. Cancel-safe.
    pub async fn failed(&mut self) -> TaskKind {
        loop {
            match self.running.join_next_with_id().await {
                Some(Err(error)) => {
                    let kind = self.kinds.remove(&error.id());
                    // The supervisor reports the failure that ends the node.
                    if let Some(kind) = kind.filter(|kind| kind.on_failure() == OnFailure::Drain) {
                        return kind;
                    }
                    let name = kind.map_or("unknown", TaskKind::name);
                    tracing::error!(task = name, %error, "a task failed; the node continues without it");
                }
                Some(Ok((id, ()))) => drop(self.kinds.remove(&id)),
                // No task is left.
                None => std::future::pending().await,
            }
        }
    }

    /// Starts a phase and waits for all tasks that end in it.
    pub async fn end(&mut self, phase: Phase) {
        self.phase(phase).cancel();
        let ends = |kinds: &HashMap<Id, TaskKind>| kinds.values().any(|kind| kind.on_drain() == phase);
        while ends(&self.kinds) {
            let id = match self.running.join_next_with_id().await {
                Some(Ok((id, ()))) => id,
                Some(Err(error)) => {
                    tracing::error!(%error, "a task failed while draining");
                    error.id()
                }
                None => return,
            };
            self.kinds.remove(&id);
        }
    }
}

/// Lets tests inject `panic task-delivery`, in debug builds only.
#[cfg(debug_assertions)]
async fn with_faults(kind: TaskKind, work: impl Future<Output = ()>) {
    let place = format!("task-{}", kind.name());
    let strike = async {
        loop {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            noroshi_supervision::fault::strike(&place);
        }
    };
    tokio::select! {
        () = work => {}
        () = strike => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime")
    }

    #[test]
    fn phases_end_only_their_own_tasks() {
        runtime().block_on(async {
            let mut tasks = Tasks::default();
            for kind in [TaskKind::Auth, TaskKind::Delivery, TaskKind::Admin] {
                tasks.spawn(kind, |end| async move { end.cancelled().await });
            }
            tasks.end(Phase::First).await;
            assert_eq!(tasks.running.len(), 2);
            tasks.end(Phase::AfterConnections).await;
            assert_eq!(tasks.running.len(), 1);
            tasks.end(Phase::Last).await;
            assert!(tasks.running.is_empty());
        });
    }

    #[test]
    fn a_failed_task_is_reported_by_kind() {
        runtime().block_on(async {
            let mut tasks = Tasks::default();
            tasks.spawn(TaskKind::Reload, |_| async { panic!("the node continues without it") });
            tasks.spawn(TaskKind::Delivery, |_| async { panic!("the node cannot work without it") });
            assert_eq!(tasks.failed().await, TaskKind::Delivery);
        });
    }
}
