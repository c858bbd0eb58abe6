//! Connections through a proxy, and past it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use noroshi_egress::{Config, Egress, Error, Proxies, ProxyUrl, Tls};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;

use crate::server::{Authority, LONG, Server, egress, hosts, open_egress, read_head};

/// Tunnels everything to `to` and records the requests.
async fn proxy_to(to: &Server) -> (Server, Arc<Mutex<Vec<String>>>) {
    let (to, heads) = (to.address, Arc::new(Mutex::new(Vec::new())));
    let keep = heads.clone();
    let server = Server::start(move |mut stream| {
        let keep = keep.clone();
        async move {
            let head = read_head(&mut stream).await;
            keep.lock().expect("no panic").push(head);
            let mut onward = TcpStream::connect(to).await.expect("reached");
            stream.write_all(b"HTTP/1.1 200 Connection established\r\nX: y\r\n\r\n").await.expect("written");
            let _ = copy_bidirectional(&mut stream, &mut onward).await;
        }
    })
    .await;
    (server, heads)
}

fn through(proxy: &Server, user: &str) -> Proxies {
    Proxies::one(ProxyUrl::parse(&format!("http://{user}{}", proxy.address)).expect("a proxy"))
}

/// `proxy` leads to the Internet: nothing is resolved here and nothing is allowed.
fn behind(proxy: &Server, change: impl FnOnce(&mut Config)) -> Egress {
    egress(|config| {
        config.proxies = through(proxy, "");
        change(config);
    })
}

#[tokio::test]
async fn tls_uses_a_tunnel_and_the_proxy_resolves_the_name() {
    let authority = Authority::new();
    let server = authority.server("far.example", &[b"h2"], false).await;
    let (proxy, heads) = proxy_to(&server).await;
    let egress = behind(&proxy, |config| {
        config.ca = vec![authority.certificate()];
        config.proxies = through(&proxy, "user:pa%20ss@");
    });
    let mut connected =
        egress.connect(true, "far.example", 443, Tls::alpn(&[b"h2"])).await.expect("connected");
    assert_eq!((connected.alpn.as_deref(), connected.peer), (Some(&b"h2"[..]), proxy.address));
    let mut text = [0; 7];
    connected.stream.read_exact(&mut text).await.expect("read");
    assert_eq!(&text, b"hello 0");
    // `user:pa ss`
    let expected = "CONNECT far.example:443 HTTP/1.1\r\nHost: far.example:443\r\n\
                    Proxy-Authorization: Basic dXNlcjpwYSBzcw==\r\n\r\n";
    assert_eq!(*heads.lock().expect("no panic"), [expected]);
}

#[tokio::test]
async fn bytes_that_the_server_sends_first_are_not_lost() {
    let says_first = Server::start(|mut stream| async move {
        read_head(&mut stream).await;
        stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhello").await.expect("written");
        let _ = stream.read(&mut [0; 1]).await;
    })
    .await;
    let slowly = Server::start(|mut stream| async move {
        read_head(&mut stream).await;
        for byte in b"HTTP/1.1 204 \r\nA: b\r\n\r\nhello" {
            stream.write_all(&[*byte]).await.expect("written");
            stream.flush().await.expect("flushed");
            tokio::task::yield_now().await;
        }
        let _ = stream.read(&mut [0; 1]).await;
    })
    .await;
    for proxy in [says_first, slowly] {
        let egress = behind(&proxy, |_| {});
        let mut connected =
            egress.connect(false, "far.example", 8080, Tls::default()).await.expect("connected");
        let mut text = [0; 5];
        connected.stream.read_exact(&mut text).await.expect("read");
        assert_eq!(&text, b"hello");
    }
}

#[tokio::test]
async fn a_rejection_by_the_proxy_has_its_own_error() {
    for (answer, part) in [
        ("HTTP/1.1 407 Who are you?\r\nProxy-Authenticate: Basic\r\n\r\n".to_owned(), "407"),
        ("HTTP/1.1 502 Bad gateway\r\n\r\n".to_owned(), "502"),
        ("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\n\r\n".to_owned(), "302"),
        ("SSH-2.0-x\r\n\r\n".to_owned(), "HTTP"),
        ("HTTP/1.1 200".to_owned(), "closed"),
        (String::new(), "closed"),
        (format!("HTTP/1.1 200 OK\r\nX: {}", "y".repeat(1 << 20)), "head of more than"),
    ] {
        let proxy = Server::answering(answer.clone()).await;
        let egress = behind(&proxy, |config| config.proxies = through(&proxy, "user:secret@"));
        let error = egress.connect(true, "far.example", 443, Tls::default()).await.expect_err(part);
        let text = error.to_string();
        assert!(matches!(error, Error::Proxy { .. }) && text.contains(part), "{text}");
        assert!(!text.contains("secret") && !error.is_permanent(), "{text}");
    }
    // No server listens there.
    let gone = Proxies::one(ProxyUrl::parse("127.0.0.9:9").expect("a proxy"));
    let egress = egress(|config| config.proxies = gone);
    let error = egress.connect(true, "far.example", 443, Tls::default()).await.expect_err("no proxy");
    assert!(matches!(error, Error::Proxy { .. }), "{error:?}");
}

#[tokio::test]
async fn a_silent_proxy_is_a_timeout() {
    let proxy = Server::silent().await;
    let egress = behind(&proxy, |config| config.connect_timeout = Duration::from_millis(50));
    let late = egress.connect(true, "far.example", 443, Tls::default()).await;
    assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
}

#[tokio::test]
async fn the_guard_checks_before_the_proxy() {
    let proxy = Server::answering("HTTP/1.1 200 OK\r\n\r\n".to_owned()).await;
    let egress = behind(&proxy, |config| config.resolver = hosts(&[("localhost", &["127.0.0.1"])]));
    for (host, port) in [
        ("169.254.169.254", 80),
        ("10.0.0.1", 80),
        ("0xa.1", 80),
        ("[::ffff:10.0.0.1]", 80),
        ("127.0.0.1", 80),
        ("localhost", 80),
        ("far.example", 25),
    ] {
        let refused = egress.connect(false, host, port, Tls::default()).await;
        assert!(matches!(refused, Err(Error::Refused { .. })), "{host}: {refused:?}");
    }
    assert_eq!(proxy.came(), 0);
    egress.connect(false, "8.8.8.8", 80, Tls::default()).await.expect("a tunnel");
    assert_eq!(proxy.came(), 1);
}

#[tokio::test]
async fn direct_targets_are_guarded() {
    let server = Server::saying("hello").await;
    let proxy = Server::silent().await;
    let direct = |config: &mut Config| config.proxies = through(&proxy, "").except("near.example");
    let egress = open_egress(direct);
    let reached = egress.connect(false, "near.example", server.port(), Tls::default());
    let reached = tokio::time::timeout(LONG, reached).await.expect("in time").expect("reached");
    assert_eq!((reached.peer, proxy.came()), (server.address, 0));

    let egress = open_egress(|config| {
        direct(config);
        config.allow = Vec::new();
    });
    let refused = egress.connect(false, "near.example", server.port(), Tls::default()).await;
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
}
