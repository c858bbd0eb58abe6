//! The service under a model: one store for the whole run, and a node that may be killed.
//!
//! Each node has a separate runtime. To kill a node, the test drops its runtime first: acknowledgements that wait for a
//! batch and the writes at a session's end are lost with it, as with `kill -9`. Its sockets close after that.

use std::sync::Arc;
use std::time::Duration;

use noroshi_delivery::Clock;
use noroshi_gateway::Config;
use noroshi_types::{DeviceNum, Timestamp, When};
use tokio::runtime::Runtime;

use crate::node::{Node, user};

/// A device whose acknowledgements tell when those before them are written.
const MARKER: &str = "marker";
const BEGIN: Timestamp = Timestamp(1_700_000_000_000);

pub(crate) struct World {
    pub(crate) node: Node,
    runtime: Option<Runtime>,
    clock: Clock,
    now: Timestamp,
    config: Config,
    marker: DeviceNum,
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

impl World {
    pub(crate) async fn start(config: Config) -> Self {
        let (clock, own) = (Clock::fixed(BEGIN), runtime());
        let (with, at) = (config.clone(), clock.clone());
        let node = own.spawn(async move { Node::start_at(with, at).await }).await.expect("no panic");
        let marker = node.device(MARKER, MARKER, &[]).await;
        Self { node, runtime: Some(own), clock, now: BEGIN, config, marker }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    pub(crate) fn advance(&mut self, by: Duration) {
        self.now = self.now.saturating_add(by);
        self.clock.set(self.now);
    }

    /// A new node on the same store, after the death of the old one (`is_sudden`) or its orderly end.
    pub(crate) async fn restart(&mut self, is_sudden: bool) {
        let own = self.runtime.take().expect("one runs");
        if is_sudden {
            own.shutdown_background();
            self.stop().await;
        } else {
            self.stop().await;
            self.acknowledgements_written().await;
            own.shutdown_background();
        }
        let own = runtime();
        let (kept, with, at) = (self.node.kept(), self.config.clone(), self.clock.clone());
        self.node =
            own.spawn(async move { Node::start_after(kept, with, at).await }).await.expect("no panic");
        self.runtime = Some(own);
    }

    async fn stop(&self) {
        let gateway = self.node.gateway.clone();
        tokio::task::spawn_blocking(move || gateway.stop()).await.expect("no panic");
    }

    /// What devices acknowledged so far is written.
    pub(crate) async fn acknowledgements_written(&self) {
        let id = self.node.publish(user(MARKER), When::Stored, "0").await;
        self.node.delivery.acks.push(self.node.app, self.marker, vec![id]);
        self.node.until_acknowledged(MARKER).await;
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(own) = self.runtime.take() {
            own.shutdown_background();
        }
        let gateway: Arc<_> = self.node.gateway.clone();
        std::thread::spawn(move || gateway.stop());
    }
}
