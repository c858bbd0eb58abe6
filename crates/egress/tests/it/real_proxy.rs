//! Proxies of other authors: microsocks (SOCKS5), tinyproxy (HTTP) and stunnel (TLS in front of it). Each test without its
//! programs says that it is skipped; `scripts/setup engines` installs them.
//!
//! Loopback never uses a proxy, so the server has an address of this machine that is not loopback, and its name is the one
//! of the machine. Our own resolver knows no name: the proxy resolves it.

use std::net::{IpAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use noroshi_egress::{Config, Egress, Error, Proxies, ProxyUrl, Tls};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::server::{Authority, LONG, Server, egress, greet, hosts};

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program that listens on `port`. `None`, with a message: it is not installed.
async fn start(program: &str, arguments: &[&str], port: u16) -> Option<Running> {
    let child = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let Ok(child) = child else {
        eprintln!("skipped: {program} is not installed; scripts/setup engines installs it");
        return None;
    };
    let running = Running(child);
    let began = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        assert!(began.elapsed() < LONG, "{program} does not listen");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Some(running)
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port()
}

/// An address of this machine that is not loopback. Sends nothing.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_loopback())
}

/// The name of this machine, if the system resolves it to an IPv4 address, and that address.
fn own_name() -> Option<(String, IpAddr)> {
    let output = Command::new("hostname").output().ok()?;
    let name = String::from_utf8(output.stdout).ok()?.trim().to_ascii_lowercase();
    let mut found = std::net::ToSocketAddrs::to_socket_addrs(&(name.as_str(), 1)).ok()?;
    let address = found.find(std::net::SocketAddr::is_ipv4)?.ip();
    (name != "localhost" && !name.is_empty()).then_some((name, address))
}

fn with(proxy: &str, change: impl FnOnce(&mut Config)) -> Egress {
    egress(|config| {
        config.proxies = Proxies::one(ProxyUrl::parse(proxy).expect("a proxy"));
        config.allow = vec!["0.0.0.0/0".parse().expect("a network")];
        change(config);
    })
}

/// Reaches a TLS server by its address and by its name through `proxy`, several times.
async fn reaches_servers(proxy: &str, proxy_ca: Option<&Authority>) {
    let authority = Authority::new();
    let trust = |config: &mut Config| {
        config.ca.push(authority.certificate());
        config.ca.extend(proxy_ca.map(Authority::certificate));
    };
    let egress = with(proxy, trust);
    let named = own_name();
    let servers = own_address().map(|address| (address.to_string(), address)).into_iter().chain(named);
    let mut reached = 0;
    for (host, address) in servers {
        let acceptor = authority.acceptor(&host, &[b"h2"], false);
        let server = Server::at(address, 0, move |stream| greet(acceptor.clone(), stream)).await;
        for _ in 0..3 {
            let connected = egress.connect(true, &host, server.port(), Tls::alpn(&[b"h2"])).await;
            let mut connected = connected.unwrap_or_else(|error| panic!("{host}: {error}"));
            assert_eq!(connected.alpn.as_deref(), Some(&b"h2"[..]));
            let mut text = [0; 7];
            connected.stream.read_exact(&mut text).await.expect("read");
            assert_eq!(&text, b"hello 0");
        }
        // Without TLS to the server, whose bytes come first.
        let plain = Server::at(address, 0, |mut stream| async move {
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, b"hello").await;
            let _ = stream.read(&mut [0; 1]).await;
        })
        .await;
        let mut connected = egress.connect(false, &host, plain.port(), Tls::default()).await.expect("open");
        let mut text = [0; 5];
        connected.stream.read_exact(&mut text).await.expect("read");
        assert_eq!(&text, b"hello");
        reached += 1;
    }
    assert!(reached > 0, "this machine has only loopback");
}

async fn refuses(proxy: &str, part: &str, change: impl FnOnce(&mut Config)) {
    let egress = with(proxy, change);
    let address = own_address().expect("an address").to_string();
    let error = egress.connect(false, &address, 9, Tls::default()).await.expect_err(part);
    let text = error.to_string();
    assert!(matches!(error, Error::Proxy { .. }) && text.contains(part), "{text}");
    assert!(!text.contains("secret"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn microsocks_connects_with_and_without_a_password() {
    let port = free_port();
    let text = port.to_string();
    let Some(open) = start("microsocks", &["-i", "127.0.0.1", "-p", &text], port).await else { return };
    reaches_servers(&format!("socks5://127.0.0.1:{port}"), None).await;
    reaches_servers(&format!("socks5h://user:secret@127.0.0.1:{port}"), None).await;
    // No server listens on port 9.
    refuses(&format!("socks5://127.0.0.1:{port}"), "connection refused", |_| {}).await;
    drop(open);

    let port = free_port();
    let text = port.to_string();
    let arguments = ["-i", "127.0.0.1", "-p", &text, "-u", "user", "-P", "p:ss secret"];
    let _closed = start("microsocks", &arguments, port).await.expect("it is installed");
    reaches_servers(&format!("socks5://user:p%3Ass%20secret@127.0.0.1:{port}"), None).await;
    refuses(&format!("socks5://user:secret@127.0.0.1:{port}"), "other credentials", |_| {}).await;
    refuses(&format!("socks5://127.0.0.1:{port}"), "requires a user and a password", |_| {}).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stunnel_and_tinyproxy_connect_through_tls() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    };
    let (plain, secure) = (free_port(), free_port());
    let tinyproxy = file(
        "tinyproxy.conf",
        &format!("Port {plain}\nListen 127.0.0.1\nTimeout 600\nAllow 127.0.0.1\nBasicAuth user p4secret\n"),
    );
    let Some(_tinyproxy) = start("tinyproxy", &["-d", "-c", &tinyproxy], plain).await else { return };
    reaches_servers(&format!("http://user:p4secret@127.0.0.1:{plain}"), None).await;

    let proxies = Authority::new();
    let issued = proxies.issue("127.0.0.1");
    let pem = file("proxy.pem", &format!("{}{}", issued.key.serialize_pem(), issued.certificate.pem()));
    let stunnel = file(
        "stunnel.conf",
        &format!(
            "foreground = yes\npid =\n[proxy]\naccept = 127.0.0.1:{secure}\nconnect = 127.0.0.1:{plain}\ncert = {pem}\n"
        ),
    );
    let program = if Path::new("/usr/bin/stunnel4").exists() { "stunnel4" } else { "stunnel" };
    let Some(_stunnel) = start(program, &[&stunnel], secure).await else { return };
    let url = format!("https://user:p4secret@127.0.0.1:{secure}");
    reaches_servers(&url, Some(&proxies)).await;
    let trusted = |config: &mut Config| config.ca = vec![proxies.certificate()];
    refuses(&format!("https://127.0.0.1:{secure}"), "407", trusted).await;
    refuses(&format!("https://user:wrong@127.0.0.1:{secure}"), "40", trusted).await;
    // The certificate of the proxy is verified, also against its name.
    refuses(&url, "TLS with 127.0.0.1 failed", |_| {}).await;
    let named = |config: &mut Config| {
        config.ca = vec![proxies.certificate()];
        config.resolver = hosts(&[("proxy.example", &["127.0.0.1"])]);
    };
    refuses(&format!("https://proxy.example:{secure}"), "TLS with proxy.example failed", named).await;
}
