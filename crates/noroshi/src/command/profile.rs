//! `noroshi profile`: takes a profile of a running node and renders a flame graph, or writes the file for other tools.

mod flame_graph;

use std::path::{Path, PathBuf};
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
enum Format {
    FlameGraph,
    Profile,
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        // Fails before the profile is taken.
        let format = format_of(&self.out)?;
        if format == Format::FlameGraph {
            flame_graph::available()?;
        }
        let pprof = match &self.from {
            Some(file) => std::fs::read(file).map_err(|error| unusable(file, &error))?,
            None => self.fetch().await?.into(),
        };
        let content = match format {
            Format::FlameGraph => flame_graph::render(&pprof)?,
            Format::Profile => pprof,
        };
        std::fs::write(&self.out, content).map_err(|error| unusable(&self.out, &error))?;
        output::line(self.out.display())
    }

    async fn fetch(&self) -> Result<bytes::Bytes, Failure> {
        let client = self.connect.client()?;
        if self.heap {
            return client.download("/debug/pprof/heap", Duration::ZERO).await;
        }
        let path = format!("/debug/pprof/profile?seconds={}&hz={}", self.seconds, self.hz);
        client.download(&path, Duration::from_secs(self.seconds)).await
    }
}

fn format_of(out: &Path) -> Result<Format, Failure> {
    let name = out.to_string_lossy();
    match () {
        () if name.ends_with(".svg") => Ok(Format::FlameGraph),
        () if name.ends_with(".pb.gz") => Ok(Format::Profile),
        () => Err(Failure::Usage(format!(
            "--out {name}: must end in .svg (a flame graph) or .pb.gz (the profile)"
        ))),
    }
}

fn unusable(file: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("{}: {error}", file.display()))
}
