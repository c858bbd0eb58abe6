//! The programs of the READMEs.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use noroshi_sdk_tests::Problem;
use noroshi_sdk_tests::node::{KEY, Node};
use noroshi_server_sdk::{Client, DeviceRegistration};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::{Context, Outcome, ensure};

const PATIENCE: Duration = Duration::from_secs(30);

struct Listening {
    process: Child,
    output: mpsc::Receiver<String>,
    log: mpsc::Receiver<String>,
}

/// `target/debug/examples/NAME`, beside this program.
fn example(name: &str) -> Result<PathBuf, Problem> {
    let own = std::env::current_exe()?;
    let folder = own.parent().and_then(Path::parent).ok_or("no folder")?;
    let path = folder.join("examples").join(name);
    match path.exists() {
        true => Ok(path),
        false => Err(format!("{} is not there: cargo build --examples", path.display()).into()),
    }
}

/// The lines of an output of a process.
fn lines(output: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(100);
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

async fn listen(url: &str, token: &str) -> Result<Listening, Problem> {
    let mut process = Command::new(example("listen")?)
        .env("NOROSHI_URL", url)
        .env("TOKEN", token)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let output = lines(process.stdout.take().ok_or("no output")?);
    let log = lines(process.stderr.take().ok_or("no log")?);
    let mut listening = Listening { process, output, log };
    let connected = async {
        while let Some(line) = listening.log.recv().await {
            if line == "connected (websocket)" {
                return Ok(());
            }
        }
        Err::<(), Problem>("the program ended".into())
    };
    timeout(PATIENCE, connected).await??;
    Ok(listening)
}

async fn send(url: &str) -> Outcome {
    let mut publish = Command::new(example("publish")?);
    publish.env("NOROSHI_URL", url);
    let output = tokio::task::spawn_blocking(move || publish.output()).await??;
    ensure(output.stdout.starts_with(b"accepted: "), || format!("{output:?}"))
}

impl Listening {
    async fn shows_hello(&mut self) -> Outcome {
        let line = timeout(PATIENCE, self.output.recv()).await?;
        ensure(line.as_deref() == Some("Hello"), || format!("{line:?}"))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The program of an example is in a README.
fn shows(readme: &str, program: &str) -> Outcome {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (readme, program) = (folder.join(readme), folder.join(program));
    let text = std::fs::read_to_string(&readme)?;
    // Blocks in lists are indented.
    let text: Vec<&str> = text.lines().map(str::trim).collect();
    let source = std::fs::read_to_string(&program)?;
    let code = source.lines().map(str::trim).skip_while(|line| line.is_empty() || line.starts_with("//!"));
    let source: Vec<&str> = code.collect();
    ensure(text.windows(source.len()).any(|lines| lines == source), || {
        format!("{} does not show {}", readme.display(), program.display())
    })
}

pub(crate) async fn the_programs_of_the_readme(_: Context) -> Outcome {
    shows("client/README.md", "client/examples/listen.rs")?;
    shows("server/README.md", "server/examples/publish.rs")?;
    let node = Node::start().await?;
    let backend = Client::new(node.url(), KEY)?;
    let device = DeviceRegistration::new().user("u1").platform("other");
    let token = backend.register_device(&device).await?.token;
    let mut listening = listen(&node.url(), &token).await?;
    send(&node.url()).await?;
    listening.shows_hello().await?;
    // The acknowledgement is sent at once.
    tokio::time::sleep(Duration::from_millis(300)).await;
    drop(listening);
    send(&node.url()).await?;
    // The message has waited.
    listen(&node.url(), &token).await?.shows_hello().await
}
