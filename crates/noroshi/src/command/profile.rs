//! `noroshi profile`: takes a profile of a running node and renders a flame graph, or writes the file for other tools.

mod picture;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use crate::client::ConnectAdmin;
use crate::failure::Failure;
use crate::output;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The suffix of --out selects the format: .svg for a flame graph to open in a browser, .pb.gz for the profile itself, \
for `go tool pprof`, Grafana and others. The node samples for --seconds before it responds.")]
pub(crate) struct Arguments {
    /// How long to sample
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Samples per second of CPU time
    #[arg(long, default_value_t = 99, value_parser = clap::value_parser!(u32).range(1..=250))]
    hz: u32,
    /// Profile live allocations instead of CPU time
    #[arg(long, conflicts_with_all = ["seconds", "hz"])]
    heap: bool,
    /// File to write: FILE.svg or FILE.pb.gz
    #[arg(long, value_name = "FILE", default_value = "profile.svg")]
    out: PathBuf,
    /// Render this profile of any program, without a node
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seconds", "hz", "heap"])]
    from: Option<PathBuf>,
    #[command(flatten)]
    connect: ConnectAdmin,
}

/// The format, by the suffix of the file name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Picture,
    Profile,
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        // Fails before the profile is taken.
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
