//! Batches are posted and signed; while the receiver is down they are spooled, also across a restart.

use std::sync::atomic::Ordering;

use noroshi_events::config::{Sink, Webhook};
use noroshi_events::metrics::Loss;

use super::*;
use crate::receiver::{self, Receiver};

const SECRET: &[u8] = b"a secret of thirty-two bytes ...";

fn to_webhook(folder: &Path, receiver: &Receiver) -> Config {
    let webhook = Webhook::new(receiver.url.clone(), SECRET);
    Config { sinks: vec![Sink::Webhook(webhook)], ..config(folder) }
}

fn received(receiver: &Receiver) -> Vec<u64> {
    receiver.received.lock().iter().flat_map(|request| numbers(&request.body)).collect()
}

#[test]
fn every_batch_is_signed_and_arrives_in_order() {
    let folder = tempfile::tempdir().expect("folder");
    let (runtime, receiver) = (runtime(), receiver::start());
    let log = start(&to_webhook(folder.path(), &receiver), Some(&runtime));
    for n in 0..5_000 {
        tell(&log.events, n);
        if n % 1_000 == 0 {
            std::thread::sleep(Duration::from_millis(25));
        }
    }
    log.service.drain();
    assert!(received(&receiver).into_iter().eq(0..5_000));
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, SECRET);
    let requests = receiver.received.lock();
    assert!(requests.len() > 1);
    for request in requests.iter() {
        let header = |name: &str| request.headers[name].as_str();
        assert_eq!(header("content-type"), "application/x-ndjson");
        let signed = format!("{}.{}.{}", header("webhook-id"), header("webhook-timestamp"), request.body);
        let signature = header("webhook-signature").strip_prefix("v1,").expect("version 1");
        let signature = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, signature).expect("base64");
        ring::hmac::verify(&key, signed.as_bytes(), &signature).expect("signed");
    }
}

#[test]
fn during_an_outage_events_are_spooled_and_arrive_in_order_after_a_restart() {
    let folder = tempfile::tempdir().expect("folder");
    let (runtime, receiver) = (runtime(), receiver::start());
    let config = Config {
        drain: Duration::from_millis(200),
        memory_bytes: 64 << 10,
        batch_bytes: 16 << 10,
        ..to_webhook(folder.path(), &receiver)
    };
    receiver.status.store(503, Ordering::SeqCst);
    let log = start(&config, Some(&runtime));
    (0..3_000).for_each(|n| tell(&log.events, n));
    let metrics = log.metrics.clone();
    wait_until("memory is full", || metrics.waiting_bytes("webhook").1 > 0);
    assert!(metrics.waiting_bytes("webhook").0 <= 64 << 10);
    let drained = log.service.drain();
    assert_eq!((drained.lost, drained.spooled), (0, 3_001));
    receiver.status.store(204, Ordering::SeqCst);
    let log = start(&config, Some(&runtime));
    (3_000..4_000).for_each(|n| tell(&log.events, n));
    wait_until("all arrived", || received(&receiver).len() >= 4_000);
    assert!(received(&receiver).into_iter().eq(0..4_000));
    log.service.drain();
}

#[test]
fn rejected_batches_are_counted_and_the_next_is_sent() {
    let folder = tempfile::tempdir().expect("folder");
    let (runtime, receiver) = (runtime(), receiver::start());
    receiver.status.store(413, Ordering::SeqCst);
    let log = start(&to_webhook(folder.path(), &receiver), Some(&runtime));
    tell(&log.events, 1);
    wait_until("it is refused", || log.metrics.lost("webhook", Loss::Refused) == 2);
    receiver.status.store(204, Ordering::SeqCst);
    tell(&log.events, 2);
    wait_until("the next arrives", || received(&receiver) == [2]);
    log.service.drain();
}

#[test]
fn a_forbidden_address_is_never_connected_to() {
    let folder = tempfile::tempdir().expect("folder");
    let (runtime, receiver) = (runtime(), receiver::start());
    let metrics = Metrics::new(&mut prometheus_client::registry::Registry::default());
    let guarded = noroshi_egress::Egress::new(noroshi_egress::Config::default()).expect("egress");
    let network = Some((runtime.handle().clone(), Arc::new(guarded)));
    let config = Config { drain: Duration::from_millis(100), ..to_webhook(folder.path(), &receiver) };
    let service = Service::start(&config, names(), network, &Default::default(), &metrics).expect("a log");
    tell(&service.events(), 1);
    let drained = service.drain();
    assert_eq!((received(&receiver).len(), drained.spooled), (0, 2));
}
