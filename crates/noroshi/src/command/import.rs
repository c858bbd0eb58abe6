//! `noroshi import devices <file>`: imports many devices, with a progress bar on a terminal, a summary, and a file of rejected lines
//! to correct and import again.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};

use crate::client::Connect;
use crate::failure::Failure;
use crate::ndjson::{Answer, Lines, exchange};
use crate::output;

/// Lines in one request: one commit of about ten milliseconds on the server.
const BATCH_LINES: usize = 1_000;
const BATCH_BYTES: usize = 4 << 20;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, Subcommand)]
enum Kind {
    /// File with one JSON object of the API per line; - for standard input
    Devices(Devices),
}

#[derive(Debug, clap::Args)]
struct Devices {
    file: PathBuf,
    /// File for rejected lines [default: FILE.rejects.ndjson; for standard input, the reasons go to standard error]
    #[arg(long, value_name = "FILE")]
    rejects: Option<PathBuf>,
    /// Write each device with its token here (mode 0600)
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    #[command(flatten)]
    connect: Connect,
    #[command(flatten)]
    format: output::Format,
}

#[derive(Default)]
struct Summary {
    imported: u64,
    refused: u64,
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        let Kind::Devices(devices) = self.kind;
        devices.run().await
    }
}

impl Devices {
    async fn run(self) -> Result<ExitCode, Failure> {
        let client = self.connect.client()?;
        let mut lines = Lines::open(&self.file)?;
        let mut tokens = self.tokens.as_deref().map(private_file).transpose()?;
        let mut rejects = None;
        let size = std::fs::metadata(&self.file).map(|file| file.len()).unwrap_or(0);
        let bar = self.format.progress(Some(size), "{bar:40} {percent:>3}%  {msg}  {elapsed}");
        let mut summary = Summary::default();
        loop {
            let batch = lines.batch(BATCH_LINES, BATCH_BYTES)?;
            if batch.is_empty() {
                break;
            }
            let bytes: u64 = batch.iter().map(|line| line.text.len() as u64 + 1).sum();
            for answer in exchange(&client, "/v1/devices/batch", batch).await? {
                self.record(&answer, &mut summary, &mut tokens, &mut rejects)?;
            }
            bar.inc(bytes);
            bar.set_message(format!("{} devices", summary.imported));
        }
        bar.finish_and_clear();
        for file in [tokens, rejects].into_iter().flatten() {
            file.into_inner().map_err(|error| Failure::failed(format!("cannot write a file: {error}")))?;
        }
        self.report(&summary)?;
        Ok(if summary.refused == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn record(
        &self,
        answer: &Answer,
        summary: &mut Summary,
        tokens: &mut Option<BufWriter<File>>,
        rejects: &mut Option<BufWriter<File>>,
    ) -> Result<(), Failure> {
        match answer.error() {
            None => {
                summary.imported += 1;
                if let Some(file) = tokens {
                    let pair =
                        json!({"device": answer.result.get("device"), "token": answer.result.get("token")});
                    write(file, &pair)?;
                }
            }
            Some(error) => {
                summary.refused += 1;
                let Some(path) = self.rejects() else {
                    let error = output::clean(&error);
                    eprintln!("line {}: {error}", answer.line.number);
                    return Ok(());
                };
                if rejects.is_none() {
                    *rejects = Some(private_file(&path)?);
                }
                if let Some(file) = rejects {
                    write(
                        file,
                        &json!({"line": answer.line.number, "error": error, "input": answer.line.text}),
                    )?;
                }
            }
        }
        Ok(())
    }

    fn report(&self, summary: &Summary) -> Result<(), Failure> {
        let rejects = self.rejects().filter(|_| summary.refused > 0).map(|path| path.display().to_string());
        if self.format.json {
            let Summary { imported, refused } = summary;
            return output::line(json!({"imported": imported, "refused": refused, "rejects": rejects}));
        }
        output::line(format_args!("{} devices imported, {} refused", summary.imported, summary.refused))?;
        match rejects {
            Some(path) => output::line(format_args!("rejected lines with reasons: {path}")),
            None => Ok(()),
        }
    }

    /// None for standard input without the option, since there is no file to derive the name from.
    fn rejects(&self) -> Option<PathBuf> {
        if self.rejects.is_some() || self.file.as_os_str() == "-" {
            return self.rejects.clone();
        }
        let mut name = self.file.clone().into_os_string();
        name.push(".rejects.ndjson");
        Some(name.into())
    }
}

/// Accessible only to its owner, since it contains device tokens or push tokens.
fn private_file(path: &Path) -> Result<BufWriter<File>, Failure> {
    use std::os::unix::fs::OpenOptionsExt;
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path);
    file.map(BufWriter::new).map_err(|error| Failure::failed(format!("{}: {error}", path.display())))
}

fn write(file: &mut impl Write, value: &Value) -> Result<(), Failure> {
    writeln!(file, "{value}").map_err(|error| Failure::failed(format!("cannot write a file: {error}")))
}
