//! Reads the events of a node, as a live tail does.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use noroshi_events::{Config, Event, Names, Record, Service, Tap};
use parking_lot::Mutex;

use crate::node::{Node, PATIENCE};

#[derive(Default)]
struct Reader(Mutex<Vec<Event>>);

impl Tap for Reader {
    fn read(&self, records: &mut Vec<Record>, _: u64) {
        self.0.lock().extend(records.drain(..).map(|record| record.event));
    }
}

pub(crate) struct EventLog {
    reader: Arc<Reader>,
    service: Service,
    _folder: tempfile::TempDir,
}

impl EventLog {
    /// Nothing reads events yet.
    pub(crate) fn of(node: &Node) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let names: Names = Arc::new(|_| None);
        let config = Config::new("n", folder.path());
        let service =
            Service::start(&config, names, None, &Default::default(), &Default::default()).expect("a log");
        node.delivery.context.outcomes.attach_events(service.events());
        let reader = Arc::<Reader>::default();
        let tap: Weak<dyn Tap> = Arc::<Reader>::downgrade(&reader);
        service.events().attach_tap(tap);
        Self { reader, service, _folder: folder }
    }

    pub(crate) fn open(&self) {
        self.service.events().set_tapped(true);
    }

    /// Waits until the events so far have an answer, which may take some of them.
    pub(crate) async fn until<T>(
        &self,
        what: &str,
        mut answer: impl FnMut(&mut Vec<Event>) -> Option<T>,
    ) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(answer) = answer(&mut self.reader.0.lock()) {
                return answer;
            }
            assert!(Instant::now() < deadline, "still waiting for {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
