//! As many half-open connections as there are descriptors: the other connections notice nothing, and when the idle ones
//! time out, new ones are admitted.

use std::os::unix::fs::FileExt;
use std::time::Duration;

use noroshi_gateway::Config;
use noroshi_types::{CloseReason, When};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::alone::alone;
use crate::node::{Node, PATIENCE, plain, read_until, upgrade_head, user};

/// Processor time of the accepting thread, through a descriptor that was opened in time.
struct AcceptorTime(std::fs::File);

impl AcceptorTime {
    fn open() -> Self {
        let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
        let task = tasks.map(|task| task.expect("a task").path()).find(|task| {
            std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "acceptor")
        });
        let stat = task.expect("an accepting thread").join("stat");
        Self(std::fs::File::open(stat).expect("opened"))
    }

    /// In hundredths of a second.
    fn ticks(&self) -> u64 {
        let mut text = [0; 1_024];
        let len = self.0.read_at(&mut text, 0).expect("read");
        let text = String::from_utf8_lossy(&text[..len]);
        // Behind the name in parentheses: state is field 3, utime 14, stime 15 (proc(5)).
        let fields: Vec<&str> = text.rsplit(')').next().expect("fields").split_whitespace().collect();
        fields[11].parse::<u64>().expect("a number") + fields[12].parse::<u64>().expect("a number")
    }
}

/// No descriptor is left above those in use.
fn forbid_more_descriptors() {
    let used = std::fs::read_dir("/proc/self/fd").expect("Linux");
    let highest = used.filter_map(|fd| fd.expect("an entry").file_name().to_str()?.parse::<u64>().ok()).max();
    let limit = highest.expect("some") + 1;
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum }).expect("lowered");
}

/// Uses up the numbers that are free below the limit.
fn fill_gaps() -> Vec<std::fs::File> {
    std::iter::from_fn(|| std::fs::File::open("/dev/null").ok()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn half_open_connections_that_take_all_descriptors_do_not_disturb_others() {
    if !alone("descriptors::half_open_connections_that_take_all_descriptors_do_not_disturb_others") {
        return;
    }
    const HOGS: usize = 400;
    let linger = Duration::from_millis(200);
    let node =
        Node::start(Config { head_timeout: Duration::from_secs(2), close_linger: linger, ..plain() }).await;
    node.device("d1", "u1", &[]).await;
    node.device("late", "u2", &[]).await;
    let mut device = node.connect("d1").await;
    let mut http = TcpStream::connect(node.address()).await.expect("connected");
    http.write_all(b"GET /v1/me HTTP/1.1\r\n\r\n").await.expect("sent");
    node.until("a hand-over", |node| !node.handed_over.lock().expect("no panic").is_empty()).await;
    let mut api = node.handed_over.lock().expect("no panic").pop().expect("one").into_io().expect("a stream");
    let acceptor = AcceptorTime::open();

    // Sockets that connect later, once the process can open no more.
    let knocking: Vec<TcpSocket> = (0..100).map(|_| TcpSocket::new_v4().expect("a socket")).collect();
    let mut hogs = Vec::new();
    for _ in 0..HOGS {
        hogs.push(TcpStream::connect(node.address()).await.expect("connected"));
    }
    let accepted = |node: &Node| node.metric("noroshi_connections_accepted_total");
    node.until("all are accepted", |node| accepted(node) == HOGS as u64 + 2).await;
    forbid_more_descriptors();
    let gaps = fill_gaps();
    assert!(TcpSocket::new_v4().is_err(), "a descriptor is left");
    let mut knocked = Vec::new();
    for socket in knocking {
        knocked.push(socket.connect(node.address()).await.expect("in the kernel's queue"));
    }
    let token = node.token("late");
    knocked[0].write_all(&upgrade_head(&token)).await.expect("sent");

    // Connected clients are served, through the store and through the API's connection.
    let before = acceptor.ticks();
    for n in 0..50 {
        node.publish(user("u1"), When::Stored, &n.to_string()).await;
        assert_eq!(device.next_data().await, json!(n));
        api.write_all(b"answer").await.expect("written");
        http.read_exact(&mut [0; 6]).await.expect("read");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // A second and more: 20 tries each, where a loop would take all of it.
    let ticks = acceptor.ticks() - before;
    assert!(ticks < 30, "the accepting thread spins: {ticks} hundredths of a second");

    // The idle connections timed out, and the waiting client is admitted.
    let late = tokio::time::timeout(PATIENCE, read_until(&mut knocked[0], b"\"ping_s\":")).await;
    late.expect("let in");
    assert!(node.metrics.closed(CloseReason::AuthTimeout) > 0, "by the end of an idle one");
    knocked.truncate(1);
    drop((hogs, gaps));
    node.until("two are left", |node| node.gateway.connections() == 2).await;
    node.publish(user("u2"), When::Connected, "1").await;
    read_until(&mut knocked[0], b"\"data\":1").await;
}
