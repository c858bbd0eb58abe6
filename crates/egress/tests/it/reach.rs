//! Which hosts are reached and which are rejected; a name is resolved once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use noroshi_egress::{Error, Resolver, Tls};
use tokio::io::AsyncReadExt;

use crate::server::{LONG, Server, egress, hosts, ip, open_egress};

#[tokio::test]
async fn an_address_of_this_machine_is_rejected_in_every_form() {
    let server = Server::saying("hello").await;
    let egress = egress(|config| {
        config.resolver = hosts(&[
            ("localhost", &["127.0.0.1"]),
            ("inside.example", &["127.0.0.1", "::1", "10.0.0.1"]),
            ("mapped.example", &["::ffff:127.0.0.1"]),
            ("any.example", &["0.0.0.0"]),
        ]);
    });
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f.1",
        "017700000001",
        "0.0.0.0",
        "0",
        "[::1]",
        "::1",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "localhost",
        "LOCALHOST.",
        "inside.example",
        "mapped.example",
        "any.example",
    ] {
        let error = egress.connect(false, host, server.port(), Tls::default()).await.expect_err(host);
        assert!(matches!(error, Error::Refused { .. }) && error.is_permanent(), "{host}: {error:?}");
        let text = error.to_string();
        assert!(
            !host.ends_with("example") || !text.contains("127."),
            "the error reveals the address of a name: {text}"
        );
    }
    assert_eq!(server.came(), 0);
}

#[tokio::test]
async fn an_allowed_network_is_reached() {
    let server = Server::saying("hello").await;
    let egress = open_egress(|_| {});
    for host in ["127.0.0.1", "near.example", "NEAR.example.", "::ffff:127.0.0.1"] {
        let mut connected = egress.connect(false, host, server.port(), Tls::default()).await.expect(host);
        let mut text = [0; 5];
        connected.stream.read_exact(&mut text).await.expect("read");
        assert_eq!((&text, connected.alpn, connected.peer.port()), (b"hello", None, server.port()), "{host}");
    }
    let refused = egress.connect(false, "10.0.0.1", server.port(), Tls::default()).await;
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
}

#[tokio::test]
async fn only_addresses_that_pass_are_connected_to() {
    let good = Server::saying("good").await;
    let port = good.port();
    let bad = Server::at(ip("127.0.0.2"), port, |_| async {}).await;
    let egress = egress(|config| {
        config.allow = vec!["127.0.0.1/32".parse().expect("a network")];
        config.resolver = hosts(&[("both.example", &["127.0.0.2", "::1", "127.0.0.1", "10.0.0.1"])]);
    });
    for _ in 0..3 {
        let connected = egress.connect(false, "both.example", port, Tls::default()).await.expect("reached");
        assert_eq!(connected.peer, good.address);
    }
    assert_eq!(bad.came(), 0);
}

#[tokio::test]
async fn a_name_is_resolved_once_and_the_checked_address_is_used() {
    let first = Server::saying("first").await;
    let port = first.port();
    let second = Server::at(ip("127.0.0.2"), port, |_| async {}).await;
    let lookups = Arc::new(AtomicUsize::new(0));
    let count = lookups.clone();
    let egress = egress(|config| {
        config.allow = vec!["127.0.0.1/32".parse().expect("a network")];
        // A name server that first returns a good address, and then the one it targets.
        config.resolver = Resolver::new(move |_| match count.fetch_add(1, Ordering::SeqCst) {
            0 => Ok(vec![ip("127.0.0.1")]),
            _ => Ok(vec![ip("127.0.0.2")]),
        });
    });
    let connected = egress.connect(false, "re.example", port, Tls::default()).await.expect("reached");
    assert_eq!((connected.peer, lookups.load(Ordering::SeqCst)), (first.address, 1));
    let refused = egress.connect(false, "re.example", port, Tls::default()).await;
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    assert_eq!((second.came(), lookups.load(Ordering::SeqCst)), (0, 2));
}

#[tokio::test]
async fn the_next_address_is_tried_if_one_is_dead() {
    let server = Server::saying("hello").await;
    let egress = open_egress(|config| {
        config.resolver = hosts(&[
            ("half.example", &["127.0.0.9", "127.0.0.8", "127.0.0.1"]),
            ("dead.example", &["127.0.0.9", "127.0.0.8"]),
            ("none.example", &[]),
        ]);
    });
    let connected =
        egress.connect(false, "half.example", server.port(), Tls::default()).await.expect("reached");
    assert_eq!(connected.peer, server.address);
    let dead = egress.connect(false, "dead.example", server.port(), Tls::default()).await;
    assert!(
        matches!(&dead, Err(Error::Unreachable { reason, .. }) if reason.contains("refused")),
        "{dead:?}"
    );
    for name in ["none.example", "unknown.example"] {
        let unresolved = egress.connect(false, name, server.port(), Tls::default()).await;
        assert!(matches!(unresolved, Err(Error::Unresolvable { .. })), "{unresolved:?}");
    }
    for (host, port) in [("", 80), ("a b", 80), ("near.example", 0)] {
        let invalid = egress.connect(false, host, port, Tls::default()).await;
        assert!(matches!(invalid, Err(Error::Invalid(_))), "{invalid:?}");
    }
}

#[tokio::test]
async fn a_name_server_that_does_not_answer_is_a_timeout() {
    let (hold, held) = std::sync::mpsc::sync_channel::<()>(0);
    let held = std::sync::Mutex::new(held);
    let egress = egress(|config| {
        config.connect_timeout = Duration::from_millis(50);
        config.resolver = Resolver::new(move |_| {
            let _ = held.lock().expect("no panic").recv();
            Ok(vec![ip("127.0.0.1")])
        });
    });
    let late = egress.connect(false, "slow.example", 80, Tls::default()).await;
    assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
    drop(hold);
}

#[tokio::test]
async fn concurrent_lookups_are_bounded() {
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, peak) = (running.clone(), most.clone());
    let egress = Arc::new(egress(|config| {
        config.resolver = Resolver::new(move |_| {
            peak.fetch_max(count.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(20));
            count.fetch_sub(1, Ordering::SeqCst);
            Ok(vec![ip("127.0.0.1")])
        });
    }));
    let mut attempts = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let egress = egress.clone();
        attempts
            .spawn(async move { egress.connect(false, "a.example", 80, Tls::default()).await.map(|_| ()) });
    }
    let ended = tokio::time::timeout(LONG, attempts.join_all()).await.expect("in time");
    assert!(ended.iter().all(|result| matches!(result, Err(Error::Refused { .. }))));
    assert!((1..=64).contains(&most.load(Ordering::SeqCst)), "{most:?}");
}

/// Name servers of two apps that never answer, and one that does.
#[tokio::test]
async fn slow_lookups_of_an_app_delay_no_other_app_and_no_push_service() {
    let server = Server::saying("hello").await;
    let port = server.port();
    let (release, held) = std::sync::mpsc::sync_channel::<()>(1);
    let held = std::sync::Mutex::new(held);
    let (running, slow) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, seen) = (running.clone(), slow.clone());
    let egress = egress(|config| {
        config.allow = vec!["127.0.0.1/32".parse().expect("a network")];
        config.connect_timeout = LONG;
        config.resolver = Resolver::new(move |name| {
            if name.starts_with("slow") {
                seen.fetch_add(1, Ordering::SeqCst);
                count.fetch_add(1, Ordering::SeqCst);
                // Waits for its turn, or for the end of the test.
                let _ = held.lock().map(|held| held.recv());
                count.fetch_sub(1, Ordering::SeqCst);
            }
            Ok(vec![ip("127.0.0.1")])
        });
    });
    let mut attempts = tokio::task::JoinSet::new();
    for number in 0..300 {
        let slow = egress.for_app(1 + number % 2);
        attempts.spawn(async move {
            slow.connect(false, &format!("slow{number}.example"), port, Tls::default()).await
        });
    }
    tokio::time::timeout(LONG, async {
        while slow.load(Ordering::SeqCst) < 8 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("each app has its lookups");
    for (egress, host) in [
        (egress.for_app(3), "other.example"),
        (egress.for_app(1), "fcm.googleapis.com"),
        (egress.clone(), "operator.example"),
    ] {
        let connected = egress.connect(false, host, port, Tls::default());
        tokio::time::timeout(LONG, connected).await.expect("in time").expect(host);
    }
    assert_eq!(running.load(Ordering::SeqCst), 8, "four of each");
    attempts.abort_all();
    drop(release);
}

#[test]
fn stored_hosts_are_checked_as_written() {
    let egress = egress(|_| {});
    for host in ["127.0.0.1", "169.254.169.254", "[fd00:ec2::254]", "192.168.0.1"] {
        assert!(matches!(egress.check(true, host, 443), Err(Error::Refused { .. })), "{host}");
    }
    assert_eq!(egress.check(true, "8.8.8.8", 443), Ok(()));
    assert_eq!(egress.check(true, "push.example", 443), Ok(()));
    assert!(matches!(egress.check(true, "8.8.8.8", 25), Err(Error::Refused { .. })));
    assert!(matches!(egress.check(true, "", 443), Err(Error::Invalid(_))));
}
