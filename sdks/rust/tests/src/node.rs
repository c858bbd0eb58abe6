//! A Noroshi node: the binary that `NOROSHI_BIN` names, on free ports, with its data in a temporary folder.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use crate::Problem;

/// The key of the app `dev`.
pub const KEY: &str = "my-development-key";
/// Of the app `dev`.
pub const JWT_SECRET: &str = "rust-secret-of-at-least-thirty-two-bytes";
/// Its name.
pub const APP: &str = "dev";

const PATIENCE: Duration = Duration::from_secs(60);

/// A node, or one that was ended and can be started again.
#[derive(Debug)]
pub struct Node {
    http: u16,
    admin: u16,
    folder: PathBuf,
    process: Option<Child>,
}

/// A port below the ephemeral range. Processes begin at different ones.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let offset = u32::from(NEXT.fetch_add(1, Ordering::Relaxed)) + std::process::id() * 131;
        let port = 11_000 + u16::try_from(offset % 21_000).unwrap_or_default();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

impl Node {
    /// Starts a node and waits until it is ready.
    pub async fn start() -> Result<Self, Problem> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("noroshi-rust-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder)?;
        let mut node = Self { http: free_port(), admin: free_port(), folder, process: None };
        node.spawn().await?;
        Ok(node)
    }

    /// Its public address.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.http)
    }

    /// The port of its public address.
    pub fn port(&self) -> u16 {
        self.http
    }

    /// Starts the process on the same ports and data.
    pub async fn spawn(&mut self) -> Result<(), Problem> {
        let binary =
            std::env::var("NOROSHI_BIN").map_err(|_| "NOROSHI_BIN does not name the binary of a node")?;
        let log = File::options().create(true).append(true).open(self.folder.join("log"))?;
        let process = Command::new(binary)
            .args(["serve", "--dev", "--data"])
            .arg(self.folder.join("data"))
            .args([
                "--http",
                &format!("127.0.0.1:{}", self.http),
                "--admin",
                &format!("127.0.0.1:{}", self.admin),
            ])
            .env("NOROSHI_DEV_KEY", KEY)
            .env("NOROSHI_DEV_JWT_SECRET", JWT_SECRET)
            .stdout(Stdio::from(log.try_clone()?))
            .stderr(Stdio::from(log))
            .kill_on_drop(true)
            .spawn()?;
        let process = self.process.insert(process);
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = process.try_wait()? {
                let log = fs::read_to_string(self.folder.join("log"))?;
                return Err(format!("the node ended: {status}\n{log}").into());
            }
            if is_ready(self.admin).await {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("the node is not ready after {PATIENCE:?}").into());
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Ends the process with SIGKILL.
    pub async fn kill(&mut self) -> Result<(), Problem> {
        if let Some(mut process) = self.process.take() {
            process.kill().await?;
        }
        Ok(())
    }

    /// Ends the process with SIGTERM, and checks that it exits with 0.
    pub async fn drain(&mut self) -> Result<(), Problem> {
        let mut process = self.process.take().ok_or("the node does not run")?;
        let id = process.id().ok_or("the node has ended")?;
        Command::new("kill").arg(id.to_string()).status().await?;
        let status = timeout(PATIENCE, process.wait()).await??;
        match status.success() {
            true => Ok(()),
            false => Err(format!("the node exited with {status}").into()),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            let _ = process.start_kill();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

async fn is_ready(admin: u16) -> bool {
    let ask = async {
        let mut connection = TcpStream::connect(("127.0.0.1", admin)).await.ok()?;
        connection
            .write_all(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .await
            .ok()?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.ok()?;
        answer.starts_with("HTTP/1.1 200").then_some(())
    };
    matches!(timeout(Duration::from_secs(5), ask).await, Ok(Some(())))
}
