//! Servers that anyone may run and a client may name: whatever they do, a push is answered in time, and a processed one
//! is not resent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use noroshi_push::{Answer, Config};
use noroshi_types::{Lane, PushService};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::answers::{reason, until};
use crate::client::{APP, Bench, Knobs, config};
use crate::scripted::{Listener, SETTINGS};

fn impatient() -> Config {
    Config { request_timeout: Duration::from_millis(300), ..config() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_allows_no_streams_delays_pushes_only_briefly() {
    let (listener, origin) = Listener::new().await;
    let one = Config { connections_max: 1, ..impatient() };
    let bench = Bench::new(one, Knobs::new(PushService::Apns, origin), vec![]);
    bench.send_all(5).await;
    let mut peer = listener.greet(0).await;
    let received = tokio::spawn(async move { peer.answer_all().await });
    let answers = bench.answers.wait(5).await;
    assert!(answers.values().all(|answer| reason(answer) == "queue_timeout"), "{answers:?}");
    assert!(bench.metric("noroshi_push_queued").abs() < 0.5);
    bench.services.drain(Duration::from_secs(30)).await;
    assert!(received.await.expect("the peer").is_empty(), "it answered pings, and that is all it was asked");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_closes_after_settings_is_reported_after_a_few_attempts() {
    let (listener, origin) = Listener::new().await;
    let bench = Bench::new(config(), Knobs::new(PushService::Apns, origin), vec![]);
    let greeting = tokio::spawn(async move {
        loop {
            drop(listener.greet(0).await);
        }
    });
    bench.send_all(5).await;
    let answers = bench.answers.wait(5).await;
    assert!(answers.values().all(|answer| reason(answer) == "connection_lost"), "{answers:?}");
    bench.services.send(bench.push(5, Lane::Direct)).await;
    assert_eq!(reason(&bench.answers.wait(6).await[&5]), "connection_lost");
    greeting.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_answers_only_pings_is_closed() {
    let (listener, origin) = Listener::new().await;
    let bench = Bench::new(impatient(), Knobs::new(PushService::Apns, origin), vec![]);
    bench.send_all(3).await;
    let mut first = listener.greet(10).await;
    first.requests(3).await;
    let answers = bench.answers.wait(3).await;
    assert!(answers.values().all(|answer| reason(answer) == "timeout"), "{answers:?}");
    bench.services.send(bench.push(3, Lane::Direct)).await;
    let mut second = listener.greet(10).await;
    let (stream, id) = second.request().await.expect("the next goes elsewhere");
    assert_eq!(id, 3);
    second.ok(stream).await;
    assert_eq!(bench.answers.wait(4).await[&3], Answer::Accepted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_connection_takes_pushes_without_a_free_stream() {
    let (listener, origin) = Listener::new().await;
    let two = Config { connections_max: 2, ..config() };
    let bench = Bench::new(two, Knobs::new(PushService::Apns, origin), vec![]);
    bench.send_all(2).await;
    let mut first = listener.greet(1).await;
    let (stream, _) = first.request().await.expect("a request");
    let mut second = listener.greet(1).await;
    let (other, _) = second.request().await.expect("a request");
    first.ok(stream).await;
    second.ok(other).await;
    bench.answers.all_accepted(2).await;
    until("nothing to do", || bench.services.status(APP)[0].in_flight == 0).await;
    first.settings(0).await;
    while first.frame().await.expect("an acknowledgement").kind != SETTINGS {}
    // The first connection is asked first, and has no free stream.
    bench.services.send(bench.push(2, Lane::Direct)).await;
    let (stream, id) = second.request().await.expect("a request");
    assert_eq!(id, 2);
    second.ok(stream).await;
    bench.answers.all_accepted(3).await;
}

/// Reads HTTP/1.1 requests and sends `answer` to each, until the client closes; with `once` it closes after one.
async fn say(socket: TcpStream, answer: Arc<[u8]>, once: bool, received: Arc<AtomicUsize>) -> Option<()> {
    let mut socket = BufReader::new(socket);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if socket.read_line(&mut line).await.ok()? == 0 {
                return None;
            }
            match line.trim_end().split_once(": ") {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.parse().ok()?
                }
                None if line.trim_end().is_empty() => break,
                _ => {}
            }
        }
        socket.read_exact(&mut vec![0; length]).await.ok()?;
        received.fetch_add(1, Ordering::SeqCst);
        socket.get_mut().write_all(&answer).await.ok()?;
        if once {
            return None;
        }
    }
}

/// An HTTP/1.1 server: its origin, and the number of requests.
async fn http1(answer: Vec<u8>, once: bool) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let origin = format!("http://{}", listener.local_addr().expect("an address"));
    let (answer, received) = (Arc::<[u8]>::from(answer), Arc::new(AtomicUsize::new(0)));
    let counted = received.clone();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(say(socket, answer.clone(), once, counted.clone()));
        }
    });
    (origin, received)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_counts_whatever_the_body() {
    let endless = b"HTTP/1.1 200 OK\r\ncontent-length: 10000000\r\n\r\n".to_vec();
    let (origin, received) = http1([endless, vec![b'x'; 100_000]].concat(), false).await;
    let bench = Bench::new(config(), Knobs::new(PushService::WebPush, origin), vec![]);
    bench.send_all(3).await;
    bench.answers.all_accepted(3).await;
    assert_eq!(received.load(Ordering::SeqCst), 3, "none was sent twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_with_one_response_per_connection_causes_no_delay() {
    let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let (origin, received) = http1(answer.to_vec(), true).await;
    let one = Config { connections_max: 1, ..config() };
    let bench = Bench::new(one, Knobs::new(PushService::WebPush, origin), vec![]);
    bench.send_all(30).await;
    bench.answers.all_accepted(30).await;
    assert_eq!(received.load(Ordering::SeqCst), 30);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_does_not_wait_for_a_silent_server() {
    let (origin, received) = http1(Vec::new(), false).await;
    let ticking = Config { ping_timeout: Duration::from_millis(500), ..config() };
    let bench = Bench::new(ticking, Knobs::new(PushService::WebPush, origin), vec![]);
    bench.send_all(1).await;
    until("the request", || received.load(Ordering::SeqCst) == 1).await;
    bench.services.drain(Duration::from_millis(100)).await;
    assert_eq!(reason(&bench.answers.wait(1).await[&0]), "drain");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_the_status_blocks_nothing() {
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    let (origin, _) = http1(answer.to_vec(), false).await;
    let bench = Arc::new(Bench::new(config(), Knobs::new(PushService::WebPush, origin), vec![]));
    let asking = std::thread::spawn({
        let bench = bench.clone();
        move || {
            while bench.answers.count() < 3_000 {
                assert_eq!(bench.services.status(APP).len(), 1);
            }
        }
    });
    bench.send_all(3_000).await;
    bench.answers.all_accepted(3_000).await;
    asking.join().expect("status after status");
}
