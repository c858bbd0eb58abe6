//! Redis servers of a test: started, stopped, paused and killed by their own pid; they end with the test.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const DEADLINE: Duration = Duration::from_secs(30);

/// Below the system's ephemeral range.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + (std::process::id() % 1_000 * 11) as u16;
    loop {
        let port = first + NEXT.fetch_add(1, Relaxed) % 1_500;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

pub(crate) struct Server {
    pub(crate) port: u16,
    program: &'static str,
    arguments: Vec<String>,
    folder: TempDir,
    child: Option<Child>,
}

impl Server {
    /// Without persistence.
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// With an append-only file.
    pub(crate) fn persistent() -> Self {
        Self::with(&["--appendonly", "yes", "--appendfsync", "always"])
    }

    pub(crate) fn with(more: &[&str]) -> Self {
        let port = free_port().to_string();
        let fixed = [
            "--port",
            &port,
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--loglevel",
            "warning",
            "--logfile",
            "log",
        ];
        let arguments = fixed.iter().chain(more).map(|argument| (*argument).to_owned()).collect();
        Self::spawn("redis-server", port.parse().expect("port"), arguments)
    }

    pub(crate) fn sentinel(master: &Server) -> Self {
        let port = free_port();
        let folder = TempDir::new().expect("folder");
        let text = format!(
            "port {port}\nbind 127.0.0.1\nlogfile log\nsentinel monitor main 127.0.0.1 {} 1\n\
             sentinel down-after-milliseconds main 600\nsentinel failover-timeout main 3000\n",
            master.port
        );
        std::fs::write(folder.path().join("sentinel.conf"), text).expect("configuration");
        let mut server = Self {
            port,
            program: "redis-sentinel",
            arguments: vec!["sentinel.conf".to_owned()],
            folder,
            child: None,
        };
        server.start_again();
        server
    }

    fn spawn(program: &'static str, port: u16, arguments: Vec<String>) -> Self {
        let folder = TempDir::new().expect("folder");
        let mut server = Self { port, program, arguments, folder, child: None };
        server.start_again();
        server
    }

    /// With the data in its folder.
    pub(crate) fn start_again(&mut self) {
        let child = Command::new(self.program)
            .args(&self.arguments)
            .current_dir(self.folder())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        self.child = Some(child.unwrap_or_else(|error| {
            panic!(
                "{} does not start ({error}): apt-get install redis-server redis-sentinel redis-tools",
                self.program
            )
        }));
        let deadline = Instant::now() + DEADLINE;
        while self.try_ask(&["PING"]).is_none() {
            let log = || std::fs::read_to_string(self.folder().join("log")).unwrap_or_default();
            assert!(
                Instant::now() < deadline,
                "{} on {} does not answer: {}",
                self.program,
                self.port,
                log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("a started server");
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("pid")).expect("pid");
        kill_process(pid, signal).expect("signal");
    }

    pub(crate) fn pause(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn connection(&self) -> ::redis::RedisResult<::redis::Connection> {
        let client = ::redis::Client::open(self.url())?;
        let connection = client.get_connection_with_timeout(Duration::from_secs(2))?;
        connection.set_read_timeout(Some(Duration::from_secs(5)))?;
        Ok(connection)
    }

    fn try_ask(&self, words: &[&str]) -> Option<::redis::Value> {
        let mut cmd = ::redis::cmd(words[0]);
        words[1..].iter().for_each(|word| {
            cmd.arg(*word);
        });
        cmd.query(&mut self.connection().ok()?).ok()
    }

    pub(crate) fn ask(&self, words: &[&str]) -> ::redis::Value {
        self.try_ask(words).unwrap_or_else(|| panic!("redis on {} does {words:?}", self.port))
    }

    /// How often the server executed a command.
    pub(crate) fn commands(&self, name: &str) -> u64 {
        let stats = self.ask_text(&["INFO", "commandstats"]);
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls=")));
        line.and_then(|rest| rest.split(',').next()?.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn ask_text(&self, words: &[&str]) -> String {
        ::redis::from_redis_value(self.ask(words)).expect("text")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Three masters that share the slots.
pub(crate) struct RedisCluster {
    pub(crate) servers: Vec<Server>,
}

impl RedisCluster {
    pub(crate) fn start() -> Self {
        let start = |_| {
            let bus = free_port().to_string();
            Server::with(&[
                "--cluster-enabled",
                "yes",
                "--cluster-port",
                &bus,
                "--cluster-node-timeout",
                "1500",
                "--cluster-require-full-coverage",
                "no",
            ])
        };
        let servers: Vec<Server> = (0..3).map(start).collect();
        let hosts = servers.iter().map(|server| format!("127.0.0.1:{}", server.port));
        let output = Command::new("redis-cli")
            .args(["--cluster", "create"])
            .args(hosts)
            .arg("--cluster-yes")
            .output()
            .expect("redis-cli is there: apt-get install redis-tools");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
        let cluster = Self { servers };
        cluster.settle();
        cluster
    }

    pub(crate) fn settle(&self) {
        let deadline = Instant::now() + DEADLINE;
        let ok = |server: &Server| server.ask_text(&["CLUSTER", "INFO"]).contains("cluster_state:ok");
        while !self.servers.iter().all(ok) {
            assert!(Instant::now() < deadline, "the cluster does not come up");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn url(&self) -> String {
        let hosts: Vec<String> =
            self.servers.iter().map(|server| format!("127.0.0.1:{}", server.port)).collect();
        format!("redis-cluster://{}", hosts.join(","))
    }
}
