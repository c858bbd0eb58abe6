//! `noroshi profile`: asks a running node for a profile and draws the flame graph, or keeps the file for other readers.

mod picture;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use crate::client::ConnectAdmin;
use crate::failure::Failure;
use crate::output;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The end of --out says what is written: .svg a flame graph, to be opened with a browser; .pb.gz the profile as it is, \
for `go tool pprof`, Grafana and others. The node samples for --seconds before it answers.")]
pub(crate) struct Arguments {
    /// How long to sample
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Samples for each second of CPU time
    #[arg(long, default_value_t = 99, value_parser = clap::value_parser!(u32).range(1..=250))]
    hz: u32,
    /// What is allocated now, instead of where the time goes
    #[arg(long, conflicts_with_all = ["seconds", "hz"])]
    heap: bool,
    /// File to write: FILE.svg or FILE.pb.gz
    #[arg(long, value_name = "FILE", default_value = "profile.svg")]
    out: PathBuf,
    /// Draw this profile, of any program, and ask no node
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seconds", "hz", "heap"])]
    from: Option<PathBuf>,
    #[command(flatten)]
    connect: ConnectAdmin,
}

/// What the end of a file's name asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Picture,
    Profile,
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        // Before anybody is kept waiting.
        let form = form(&self.out)?;
        if form == Form::Picture {
            picture::available()?;
        }
        let pprof = match &self.from {
            Some(file) => std::fs::read(file).map_err(|error| unusable(file, &error))?,
            None => self.ask().await?.into(),
        };
        let content = match form {
            Form::Picture => picture::draw(&pprof)?,
            Form::Profile => pprof,
        };
        std::fs::write(&self.out, content).map_err(|error| unusable(&self.out, &error))?;
        output::line(self.out.display())?;
        Ok(ExitCode::SUCCESS)
    }

    async fn ask(&self) -> Result<bytes::Bytes, Failure> {
        let client = self.connect.client()?;
        if self.heap {
            return client.download("/debug/pprof/heap", Duration::ZERO).await;
        }
        let path = format!("/debug/pprof/profile?seconds={}&hz={}", self.seconds, self.hz);
        client.download(&path, Duration::from_secs(self.seconds)).await
    }
}

fn form(out: &Path) -> Result<Form, Failure> {
    let name = out.to_string_lossy();
    match () {
        () if name.ends_with(".svg") => Ok(Form::Picture),
        () if name.ends_with(".pb.gz") => Ok(Form::Profile),
        () => Err(Failure::Usage(format!(
            "--out {name}: its end is .svg (a flame graph) or .pb.gz (the profile)"
        ))),
    }
}

fn unusable(file: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("{}: {error}", file.display()))
}
