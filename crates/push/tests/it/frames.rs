//! Frames of a peer other than responses: GOAWAY, refused streams, late SETTINGS, silence.

use std::collections::BTreeSet;
use std::time::Duration;

use noroshi_push::{Answer, Config};
use noroshi_types::{Lane, PushService};

use crate::answers::reason;
use crate::client::{Bench, Knobs, config};
use crate::scripted::{HEADERS, Listener, PING};

fn bench(origin: String, config: Config) -> Bench {
    Bench::new(config, Knobs::new(PushService::Apns, origin), Vec::new())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_above_goaway_are_resent_elsewhere_and_the_others_are_awaited() {
    let (listener, origin) = Listener::new().await;
    let bench = bench(origin, config());
    bench.send_all(10).await;
    let mut first = listener.greet(100).await;
    let requests = first.requests(10).await;
    // The first six are in progress, the others will never be processed.
    let (taken, left) = requests.split_at(6);
    first.go_away(taken[5].0).await;
    let mut second = listener.greet(100).await;
    let again = second.requests(4).await;
    let ids = |requests: &[(u32, u32)]| requests.iter().map(|(_, id)| *id).collect::<BTreeSet<_>>();
    assert_eq!(ids(&again), ids(left));
    for (stream, _) in again {
        second.ok(stream).await;
    }
    for (stream, _) in taken {
        first.ok(*stream).await;
    }
    bench.answers.all_accepted(10).await;
    assert_eq!(first.request().await, None, "the drained connection is closed");
    bench.services.send(bench.push(10, Lane::Direct)).await;
    assert_eq!(second.requests(1).await[0].1, 10, "and the other one is used");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_closes_every_connection_causes_no_storm() {
    let (listener, origin) = Listener::new().await;
    let bench = bench(origin, config());
    let ending = tokio::spawn(async move {
        let mut accepted = 0;
        loop {
            let mut peer = listener.greet(100).await;
            accepted += 1;
            if peer.request().await.is_some() {
                // Nothing of it was processed.
                peer.go_away(0).await;
                while peer.frame().await.is_some() {}
            }
            if accepted == 6 {
                return;
            }
        }
    });
    bench.send_all(1).await;
    let answers = bench.answers.wait(1).await;
    assert!(matches!(answers[&0], Answer::Later { reason: "goaway", .. }), "{answers:?}");
    ending.await.expect("six connections");
    let failures = bench.metric("noroshi_push_connect_failures_total");
    assert!((failures - 6.0).abs() < 0.5, "each was backed off from: {failures}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_stream_is_resent_and_lowers_the_limit() {
    let (listener, origin) = Listener::new().await;
    let bench = bench(origin, Config { connections_max: 1, ..config() });
    bench.send_all(40).await;
    let mut peer = listener.greet(100).await;
    let mut taken = Vec::new();
    let mut refused = BTreeSet::new();
    while taken.len() < 40 {
        let (stream, id) = peer.request().await.expect("all requests");
        // Refuses each third one the first time.
        if id % 3 == 0 && refused.insert(id) {
            peer.refuse(stream).await;
        } else {
            taken.push(id);
            peer.ok(stream).await;
        }
    }
    bench.answers.all_accepted(40).await;
    assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), 40, "each is taken once");
    assert!((bench.metric("noroshi_push_resent_total") - 14.0).abs() < 0.5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_refuses_all_streams_causes_no_loop() {
    let (listener, origin) = Listener::new().await;
    let bench = bench(origin, Config { connections_max: 1, ..config() });
    bench.send_all(20).await;
    let mut peer = listener.greet(100).await;
    let refusing = tokio::spawn(async move {
        let mut count = 0;
        while let Some((stream, _)) = peer.request().await {
            count += 1;
            peer.refuse(stream).await;
        }
        count
    });
    let answers = bench.answers.wait(20).await;
    assert!(answers.values().all(|answer| reason(answer) == "refused_stream"), "{answers:?}");
    bench.services.drain(Duration::from_secs(30)).await;
    assert_eq!(refusing.await.expect("the peer"), 20 * 6, "each once, and five times more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_sent_before_the_peers_settings() {
    let (listener, origin) = Listener::new().await;
    let bench = bench(origin, config());
    bench.send_all(5).await;
    let mut peer = listener.accept().await;
    let mut received = Vec::new();
    // Long enough for a request that should not come.
    while let Ok(frame) = tokio::time::timeout(Duration::from_millis(200), peer.frame()).await {
        received.push(frame.expect("the connection is open"));
    }
    assert!(received.iter().all(|frame| frame.kind != HEADERS), "{received:?}");
    peer.settings(2).await;
    let mut streams = Vec::new();
    for _ in 0..5 {
        let (stream, _) = peer.request().await.expect("a request");
        streams.push(stream);
        peer.ok(stream).await;
    }
    bench.answers.all_accepted(5).await;
    assert_eq!(streams, [1, 3, 5, 7, 9]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_peer_is_pinged_and_then_closed() {
    let (listener, origin) = Listener::new().await;
    let impatient = Config { ping_timeout: Duration::from_millis(300), ..config() };
    let bench = bench(origin, impatient);
    bench.send_all(3).await;
    let mut peer = listener.greet(100).await;
    peer.requests(3).await;
    let mut pinged = false;
    while let Some(frame) = peer.frame().await {
        pinged |= frame.kind == PING;
    }
    assert!(pinged, "it was asked before it was left");
    let answers = bench.answers.wait(3).await;
    for answer in answers.values() {
        assert!(matches!(answer, Answer::Later { reason: "ping_timeout", .. }), "{answer:?}");
    }
}
