//! Rejected log-ins in the event log: for which app, why, and of whom. Never the token.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use noroshi_events::event::Rejected;
use noroshi_events::{Config, Event, Names, Record, Service, Tap};
use noroshi_store::Devices;
use noroshi_types::DeviceId;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::node::{Node, PATIENCE, plain};

#[derive(Default)]
struct Reader(Mutex<Vec<Rejected>>);

impl Tap for Reader {
    fn read(&self, records: &mut Vec<Record>, _: u64) {
        let rejected = records.drain(..).filter_map(|record| match record.event {
            Event::Rejected(rejected) => Some(*rejected),
            _ => None,
        });
        self.0.lock().extend(rejected);
    }
}

struct Log {
    reader: Arc<Reader>,
    service: Service,
    _folder: tempfile::TempDir,
}

impl Log {
    fn of(node: &Node) -> Self {
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

    fn open(&self) {
        self.service.events().set_tapped(true);
    }

    /// The next event.
    async fn next(&self) -> Rejected {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let next = {
                let mut seen = self.reader.0.lock();
                (!seen.is_empty()).then(|| seen.remove(0))
            };
            match next {
                Some(rejected) => return rejected,
                None => assert!(Instant::now() < deadline, "no event"),
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Opens an event stream, and returns the status of the answer.
async fn open(node: &Node, query: &str, token: Option<&str>) -> String {
    let mut stream = TcpStream::connect(node.address()).await.expect("connected");
    let authorization = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!("GET /v1/events{query} HTTP/1.1\r\nHost: x\r\n{authorization}\r\n");
    stream.write_all(request.as_bytes()).await.expect("sent");
    let mut answer = [0; 12];
    tokio::time::timeout(PATIENCE, stream.read_exact(&mut answer))
        .await
        .expect("in time")
        .expect("an answer");
    String::from_utf8_lossy(&answer[9..]).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_log_in_is_an_event() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    let log = Log::of(&node);
    // Nothing reads events yet.
    let good = node.token("d1");
    let forged = format!("{}AAAA", &good[..good.len() - 4]);
    assert_eq!(open(&node, "", Some(&forged)).await, "401");
    log.open();

    assert_eq!(open(&node, "", Some(&forged)).await, "401");
    let first = log.next().await;
    assert_eq!((first.app, first.reason, first.protocol), (Some(node.app), "signature", "native"));
    assert_eq!((&first.device_id, &first.user, first.network.as_deref()), (&None, &None, Some("127.0.0.1")));
    assert!(!format!("{first:?}").contains(&forged[10..]), "{first:?}");

    let expired = node.token_for("d1", Duration::ZERO);
    assert_eq!(open(&node, "", Some(&expired)).await, "401");
    assert_eq!(log.next().await.reason, "expired");
    assert_eq!(open(&node, "?app=dev", None).await, "401");
    let missing = log.next().await;
    assert_eq!((missing.app, missing.reason), (Some(node.app), "missing"));
    assert_eq!(open(&node, "?app=nothing", Some("nonsense")).await, "401");
    let unknown = log.next().await;
    assert_eq!((unknown.app, unknown.reason), (None, "malformed"));

    // The token is valid, so it proves the device.
    let device = DeviceId::parse("d1").expect("an id");
    node.store.revoke_tokens(node.app, &device, node.now()).await.expect("revoked");
    assert_eq!(open(&node, "", Some(&good)).await, "401");
    let revoked = log.next().await;
    assert_eq!((revoked.app, revoked.reason, revoked.device_id), (Some(node.app), "revoked", Some(device)));
    node.gateway.stop();
}
