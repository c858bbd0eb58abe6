//! The programs of the READMEs.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use noroshi_sdk_tests::Problem;
use noroshi_sdk_tests::node::Node;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};
use tokio::time::timeout;

use crate::{Context, Outcome, ensure};

const PATIENCE: Duration = Duration::from_secs(30);

struct Listening {
    process: Child,
    output: Lines<BufReader<ChildStdout>>,
    log: Lines<BufReader<ChildStderr>>,
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

async fn listen(url: &str) -> Result<Listening, Problem> {
    let mut process = Command::new(example("listen")?)
        .env("NOROSHI_URL", url)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let output = BufReader::new(process.stdout.take().ok_or("no output")?).lines();
    let mut log = BufReader::new(process.stderr.take().ok_or("no log")?).lines();
    let connected = async {
        while let Some(line) = log.next_line().await? {
            if line == "connected (websocket)" {
                return Ok(());
            }
        }
        Err::<(), Problem>("the program ended".into())
    };
    timeout(PATIENCE, connected).await??;
    Ok(Listening { process, output, log })
}

async fn send(url: &str) -> Outcome {
    let output = Command::new(example("publish")?).env("NOROSHI_URL", url).output().await?;
    ensure(output.stdout.starts_with(b"accepted: "), || format!("{output:?}"))
}

impl Listening {
    async fn shows_hello(&mut self) -> Outcome {
        let line = timeout(PATIENCE, self.output.next_line()).await??;
        ensure(line.as_deref() == Some("Hello"), || format!("{line:?}"))
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
    let source: Vec<&str> = source.lines().map(str::trim).collect();
    ensure(text.windows(source.len()).any(|lines| lines == source), || {
        format!("{} does not show {}", readme.display(), program.display())
    })
}

pub(crate) async fn the_programs_of_the_readme(_: Context) -> Outcome {
    shows("client/README.md", "client/examples/listen.rs")?;
    shows("server/README.md", "server/examples/publish.rs")?;
    let node = Node::start().await?;
    let mut listening = listen(&node.url()).await?;
    send(&node.url()).await?;
    listening.shows_hello().await?;
    // The acknowledgement is sent at once.
    tokio::time::sleep(Duration::from_millis(300)).await;
    listening.process.kill().await?;
    drop(listening.log);
    send(&node.url()).await?;
    // The message has waited.
    listen(&node.url()).await?.shows_hello().await
}
