//! A PostgreSQL server for the tests: from the Debian package, on a Unix socket in a temporary folder.
//!
//! It is the child of a shell that waits for the end of its standard input, which only the test process holds open:
//! however the process ends, the shell stops the server and removes the folder. All tests of the process share one
//! server, and each has a database copied from a template with the schema. Tests that disturb a server start their
//! own.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use noroshi_store::{Maintenance as _, Postgres, PostgresOptions};
use prometheus_client::registry::Registry;
use tokio::sync::OnceCell;
use tokio_postgres::NoTls;

/// The template: the current schema without rows.
const TEMPLATE: &str = "noroshi_template";

/// A server under test.
pub(super) struct Server {
    folder: PathBuf,
    bin: PathBuf,
    user: Option<(u32, u32)>,
    /// The shell waits for the end of this pipe.
    shell: Child,
    template: OnceCell<()>,
    databases: AtomicU32,
}

/// The database of one test, dropped with it.
pub(super) struct Database {
    folder: PathBuf,
    name: String,
}

/// The server that all tests share.
pub(super) fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start(false))
}

impl Server {
    /// `durable`: a crash loses nothing, as in production.
    pub(super) fn start(durable: bool) -> Self {
        let bin = binaries();
        let user = unprivileged();
        // The shell removes the folder.
        let own = tempfile::Builder::new().prefix("noroshi-pg-").tempdir().expect("a temporary folder");
        let folder = own.path().to_owned();
        if let Some((uid, gid)) = user {
            std::os::unix::fs::chown(&folder, Some(uid), Some(gid)).expect("the folder is handed over");
        }
        let data = folder.join("data");
        let made = command(&bin.join("initdb"), user)
            .args(["--auth=trust", "--username=noroshi", "--encoding=UTF8", "--locale=C", "--no-sync", "-D"])
            .arg(&data)
            .output()
            .expect("initdb runs");
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let mut settings = std::fs::OpenOptions::new()
            .append(true)
            .open(data.join("postgresql.conf"))
            .expect("made by initdb");
        writeln!(
            settings,
            "listen_addresses = ''\nunix_socket_directories = '{}'\nmax_connections = 300\nshared_buffers = 64MB",
            folder.display()
        )
        .expect("written");
        if !durable {
            writeln!(settings, "fsync = off\nfull_page_writes = off").expect("written");
        }
        let script =
            "\"$1/postgres\" -D \"$2/data\" >\"$2/log\" 2>&1 <&- & echo $! >\"$2/pid\"; cat >/dev/null
                      \"$1/pg_ctl\" stop -m immediate -D \"$2/data\" >/dev/null 2>&1; rm -rf \"$2\"";
        let shell = command(Path::new("/bin/sh"), user)
            .args(["-c", script, "sh"])
            .args([&bin, &folder])
            .stdin(Stdio::piped())
            // A key press that interrupts the tests must not end it: it ends with them.
            .process_group(0)
            .spawn()
            .expect("a shell");
        let _ = own.keep();
        let server =
            Self { folder, bin, user, shell, template: OnceCell::new(), databases: AtomicU32::new(0) };
        server.wait_until_ready();
        server
    }

    fn wait_until_ready(&self) {
        let started = Instant::now();
        loop {
            let asked = command(&self.bin.join("pg_isready"), self.user)
                .args(["-q", "-U", "noroshi", "-d", "postgres", "-h"])
                .arg(&self.folder)
                .status();
            if asked.expect("pg_isready runs").success() {
                return;
            }
            let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(started.elapsed() < Duration::from_secs(60), "PostgreSQL does not start: {log}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn control(&self, arguments: &[&str]) {
        let done = command(&self.bin.join("pg_ctl"), self.user)
            .args(arguments)
            .arg("-D")
            .arg(self.folder.join("data"))
            .arg("-l")
            .arg(self.folder.join("log"))
            .stdin(Stdio::null())
            .output()
            .expect("pg_ctl runs");
        assert!(done.status.success(), "pg_ctl: {}", String::from_utf8_lossy(&done.stderr));
    }

    /// Stops it, `fast` or at once (`immediate`, as in a crash).
    pub(super) fn stop(&self, mode: &str) {
        self.control(&["stop", "-w", "-m", mode]);
    }

    pub(super) fn start_again(&self) {
        self.control(&["start", "-w", "-t", "60"]);
    }

    /// A fresh database with the current schema.
    pub(super) async fn database(&self) -> Database {
        self.template.get_or_init(|| self.make_template()).await;
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        execute(&self.folder, &format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE}")).await;
        Database { folder: self.folder.clone(), name }
    }

    /// A database without a schema.
    pub(super) async fn empty_database(&self) -> Database {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        execute(&self.folder, &format!("CREATE DATABASE {name}")).await;
        Database { folder: self.folder.clone(), name }
    }

    async fn make_template(&self) {
        execute(&self.folder, &format!("CREATE DATABASE {TEMPLATE}")).await;
        let options = PostgresOptions::new(&url(&self.folder, TEMPLATE));
        let store = Postgres::open(options, &mut Registry::default()).await.expect("opened a fresh store");
        store.close().await;
        drop(store);
        // A copy needs the template without connections, which end a moment later.
        let sql =
            format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{TEMPLATE}'");
        execute(&self.folder, &sql).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        // It ends soon, and a failure needs no handling.
        let _ = self.shell.wait();
    }
}

impl Database {
    pub(super) fn url(&self) -> String {
        url(&self.folder, &self.name)
    }

    /// The folder of the server's socket.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The same database behind another socket.
    pub(super) fn url_through(&self, folder: &Path) -> String {
        url(folder, &self.name)
    }

    /// A connection besides the store's.
    pub(super) async fn client(&self) -> tokio_postgres::Client {
        connect(&self.folder, &self.name).await
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let (folder, sql) = (self.folder.clone(), format!("DROP DATABASE {} WITH (FORCE)", self.name));
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let Ok(runtime) = runtime else { return };
            runtime.block_on(async {
                // The server may have stopped with it.
                let url = format!("host={} user=noroshi dbname=postgres", folder.display());
                if let Ok((client, connection)) = tokio_postgres::connect(&url, NoTls).await {
                    let connection = tokio::spawn(connection);
                    let _ = client.batch_execute(&sql).await;
                    drop(client);
                    let _ = connection.await;
                }
            });
        });
        let _ = dropping.join();
    }
}

fn url(folder: &Path, database: &str) -> String {
    let host = folder.display().to_string().replace('/', "%2F");
    format!("postgres://noroshi@{host}/{database}")
}

async fn connect(folder: &Path, database: &str) -> tokio_postgres::Client {
    let url = format!("host={} user=noroshi dbname={database}", folder.display());
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("it connects");
    tokio::spawn(connection);
    client
}

async fn execute(folder: &Path, sql: &str) {
    let client = connect(folder, "postgres").await;
    for _ in 0..200 {
        match client.batch_execute(sql).await {
            Ok(()) => return,
            // Connections to the template are still closing.
            Err(error) if error.code().is_some_and(|code| code.code() == "55006") => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(error) => panic!("{sql}: {error:?}"),
        }
    }
    panic!("{sql}: in use");
}

/// The package's folder, newest version first.
fn binaries() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    found.retain(|bin| bin.join("initdb").exists());
    found.sort();
    found.pop().expect(
        "these tests need PostgreSQL's programs under /usr/lib/postgresql: install the Debian package `postgresql` \
         (scripts/setup engines)",
    )
}

/// PostgreSQL does not run as root: the user that the package creates.
fn unprivileged() -> Option<(u32, u32)> {
    let own = std::fs::metadata("/proc/self").expect("Linux");
    if std::os::unix::fs::MetadataExt::uid(&own) != 0 {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").expect("readable");
    let ids = users.lines().find(|line| line.starts_with("postgres:")).and_then(|line| {
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    });
    Some(
        ids.expect(
            "as root these tests need the user `postgres`, which the Debian package `postgresql` makes",
        ),
    )
}

fn command(program: &Path, user: Option<(u32, u32)>) -> Command {
    let mut command = Command::new(program);
    command.current_dir("/").env("LC_ALL", "C");
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    command
}
