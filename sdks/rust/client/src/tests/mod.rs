//! Tests of the whole client.

mod player;
pub(crate) mod probe;
mod scripted;
pub(crate) mod vectors;

use std::collections::VecDeque;
use std::sync::Mutex;
use std::thread;

use serde_json::Value;

use crate::protocol::Effect;
use vectors::Vector;

/// A vector waits for sockets most of the time; each has a server for itself.
const SERVERS: usize = 8;

/// Sees each effect of a machine.
#[derive(Default)]
pub(crate) struct Observer(Mutex<Observed>);

#[derive(Default)]
pub(crate) struct Observed {
    /// In the form of the vectors.
    pub(crate) local: Vec<Value>,
    /// Connections and requests.
    pub(crate) started: usize,
    /// Messages that the application has not got yet.
    pub(crate) passed: usize,
    pub(crate) sees_unread: bool,
}

impl Observer {
    pub(crate) fn see(&self, effect: &Effect) {
        let mut observed = self.lock();
        let sees_unread = observed.sees_unread;
        observed.local.extend(vectors::local(effect, sees_unread));
        match effect {
            Effect::Dial(_) | Effect::Request(_) => observed.started += 1,
            Effect::Pass(_) => observed.passed += 1,
            _ => {}
        }
    }

    /// The application does not get a message that was passed on.
    pub(crate) fn returned(&self) {
        self.lock().passed -= 1;
    }

    pub(crate) fn lock(&self) -> std::sync::MutexGuard<'_, Observed> {
        self.0.lock().expect("no test panics under the lock")
    }
}

/// Over real sockets, against sdks/scripted-server.
#[test]
fn every_vector_passes_over_sockets() {
    let mut all = vectors::load();
    let only = std::env::var("VECTOR").unwrap_or_default();
    all.retain(|vector| vector.name.contains(&only));
    // The longest first.
    all.sort_by_key(|vector| std::cmp::Reverse(vector.steps.len()));
    let count = all.len();
    let waiting = Mutex::new(VecDeque::from(all));
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..SERVERS.min(count) {
            scope.spawn(|| {
                let server = scripted::Server::start();
                let next = || waiting.lock().expect("no panic").pop_front();
                while let Some(vector) = next() {
                    if let Err(difference) = play(&server, &vector) {
                        failures
                            .lock()
                            .expect("no panic")
                            .push(format!("{}: {}: {difference}", vector.file, vector.name));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no panic");
    assert!(failures.is_empty(), "{} of {count} vectors fail:\n{}", failures.len(), failures.join("\n"));
}

fn play(server: &scripted::Server, vector: &Vector) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let result = runtime.block_on(player::play(&server.url, vector));
    // A request for a token may never have an answer.
    runtime.shutdown_background();
    result
}
