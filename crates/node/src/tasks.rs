//! Every background task of a node, by kind. What happens when one fails and when it ends in a drain is
//! written down here, once, and nowhere else.
//!
//! Invariant: a task that is not in [`TaskKind`] does not exist. Connections handed to the API are
//! counted apart ([`Tasks::connections`]): there are many, and a failure of one is its own affair.

use std::collections::HashMap;

use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The kinds of background work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TaskKind {
    /// Confirmations and clean-up (`delivery`).
    Delivery,
    /// JWK sets of apps (`auth`).
    Auth,
    /// Accepts connections to the admin address.
    Admin,
    /// Reads certificates again on SIGHUP.
    Reload,
    /// Keeps gauges current.
    Gauges,
    /// Tells the other nodes how this one is.
    Nodes,
    /// The lease, the directory and the bus.
    Cluster,
    /// Hands on to cells.
    Front,
    /// Takes notifications from a queue.
    Intake,
    /// Sends traces and metrics to a collector.
    Tracing,
    /// Pushes profiles.
    Profiling,
}

/// When in a drain a task ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// At once: nothing waits for it.
    First,
    /// After the connections are gone: they still make work for it.
    AfterConnections,
    /// When all else is done: it says how the drain goes.
    Last,
}

/// What the node does when a task panics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnFailure {
    /// The node cannot keep its promises without it: it drains and exits with a failure, and whoever
    /// supervises it starts it anew.
    Drain,
    /// The node goes on; the log says what is missing.
    GoOn,
}

impl TaskKind {
    pub fn name(self) -> &'static str {
        match self {
            TaskKind::Delivery => "delivery",
            TaskKind::Auth => "auth",
            TaskKind::Admin => "admin",
            TaskKind::Reload => "reload",
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
            TaskKind::Auth | TaskKind::Reload | TaskKind::Intake | TaskKind::Profiling => Phase::First,
            // What delivery still has to hand over goes by the cluster: it ends behind it.
            TaskKind::Delivery | TaskKind::Front => Phase::AfterConnections,
            // They show how the drain goes.
            TaskKind::Admin | TaskKind::Gauges | TaskKind::Nodes | TaskKind::Cluster | TaskKind::Tracing => {
                Phase::Last
            }
        }
    }

    pub fn on_failure(self) -> OnFailure {
        match self {
            // Without the admin address the node would be taken for dead anyway.
            TaskKind::Delivery
            | TaskKind::Auth
            | TaskKind::Admin
            | TaskKind::Cluster
            | TaskKind::Front
            | TaskKind::Intake => OnFailure::Drain,
            TaskKind::Reload
            | TaskKind::Gauges
            | TaskKind::Nodes
            | TaskKind::Tracing
            | TaskKind::Profiling => OnFailure::GoOn,
        }
    }
}

/// All that runs.
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
    /// Starts a task; it is given the signal of its phase and ends soon after.
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

    /// Told to every connection of the API: finish the request at hand, then close.
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

    /// Resolves when a task has failed without which the node cannot go on. Cancel-safe.
    pub async fn failed(&mut self) -> TaskKind {
        loop {
            match self.running.join_next_with_id().await {
                Some(Err(error)) => {
                    let kind = self.kinds.remove(&error.id());
                    // The supervisor says which one ends the node.
                    if let Some(kind) = kind.filter(|kind| kind.on_failure() == OnFailure::Drain) {
                        return kind;
                    }
                    let name = kind.map_or("unknown", TaskKind::name);
                    tracing::error!(task = name, %error, "a task failed; the node goes on without it");
                }
                Some(Ok((id, ()))) => drop(self.kinds.remove(&id)),
                // Nothing is left that could fail.
                None => std::future::pending().await,
            }
        }
    }

    /// Begins a phase and waits for every task that ends in it.
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

/// Tests may ask for `panic task-delivery`: in debug builds only.
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
    fn phases_end_their_own_tasks_only() {
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
    fn a_failed_task_is_told_by_its_kind() {
        runtime().block_on(async {
            let mut tasks = Tasks::default();
            tasks.spawn(TaskKind::Reload, |_| async { panic!("the node goes on without") });
            tasks.spawn(TaskKind::Delivery, |_| async { panic!("the node cannot go on") });
            assert_eq!(tasks.failed().await, TaskKind::Delivery);
        });
    }
}
