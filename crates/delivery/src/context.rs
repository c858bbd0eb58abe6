//! What every component needs: store, clock, runtime, the connections of this node, spans and outcomes.
//!
//! One value for each node, created by [`crate::Delivery`] and shared as `Arc<Context>`. It decides nothing and knows no
//! component. What is attached later (the gateway's edge, the span exporter) is set once, before anything runs.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use noroshi_store::Store;
use noroshi_telemetry::Spans;
use noroshi_types::{AppId, Category, DeviceId, Label, Timestamp, UserId};
use tokio::runtime::Handle;

use crate::clock::Clock;
use crate::edge::{Edge, Session};
use crate::outcomes::{self, Outcomes};

/// Used while no exporter is attached.
static NO_SPANS: Spans = Spans::off();

pub struct Context {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Clock,
    pub outcomes: Outcomes,
    /// Runs work that shards start: they have no tokio runtime of their own.
    pub(crate) runtime: Handle,
    /// Set once the gateway exists: it needs a [`crate::Delivery`] to be built.
    edge: OnceLock<Arc<dyn Edge>>,
    /// Set once, before anything runs, where spans are exported.
    spans: OnceLock<Spans>,
    /// Apps without essential categories are absent.
    essential: ArcSwap<HashMap<AppId, Vec<Label>>>,
}

impl Context {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        clock: Clock,
        metrics: outcomes::Metrics,
        runtime: Handle,
    ) -> Self {
        let outcomes = Outcomes::new(store.clone(), clock.clone(), metrics);
        let (edge, spans, essential) = (OnceLock::new(), OnceLock::new(), ArcSwap::default());
        Self { store, clock, outcomes, runtime, edge, spans, essential }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Attaches the gateway. Until then nothing is delivered live. A second call is ignored.
    pub fn attach_edge(&self, edge: Arc<dyn Edge>) {
        let _ = self.edge.set(edge);
    }

    /// The connections of this node; none on a node without a gateway.
    pub(crate) fn edge(&self) -> Option<&Arc<dyn Edge>> {
        self.edge.get()
    }

    /// Attaches the span exporter. A second call is ignored.
    pub fn attach_spans(&self, spans: Spans) {
        let _ = self.spans.set(spans);
    }

    /// Records nothing while no exporter is attached.
    pub fn spans(&self) -> &Spans {
        self.spans.get().unwrap_or(&NO_SPANS)
    }

    /// Sets the categories of all apps that no preference suppresses.
    pub fn set_essential_categories(&self, apps: impl IntoIterator<Item = (AppId, Vec<Label>)>) {
        let listed = apps.into_iter().filter(|(_, names)| !names.is_empty());
        self.essential.store(Arc::new(listed.collect()));
    }

    /// A category with its present weight.
    pub(crate) fn category(&self, app: AppId, name: Label) -> Category {
        let is_essential = self.essential.load().get(&app).is_some_and(|names| names.contains(&name));
        Category { name, is_essential }
    }

    /// The sessions of each user on this node, in the order of `users`.
    pub(crate) fn local_sessions(&self, app: AppId, users: &[UserId]) -> Vec<Vec<Session>> {
        self.edge().map_or_else(|| vec![Vec::new(); users.len()], |edge| edge.sessions(app, users))
    }

    /// The session on this node, without asking others.
    pub fn local_session(&self, app: AppId, device: &DeviceId) -> Option<Session> {
        self.edge().and_then(|edge| edge.session(app, device))
    }

    /// The generation of each device's session on this node, in order; 0 without a session.
    pub(crate) fn local_generations(&self, app: AppId, devices: &[DeviceId]) -> Vec<u64> {
        let here = |device| self.edge().map_or(0, |edge| edge.generation(app, device));
        devices.iter().map(here).collect()
    }
}
