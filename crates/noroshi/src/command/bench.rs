//! `noroshi bench`: the load generator of the crate `load`, with its handling of signals.

use std::process::ExitCode;

use tokio::signal::unix::{SignalKind, signal};

use crate::failure::Failure;

/// The exit code by which a shell reports a process that a signal ended.
const INTERRUPTED: i32 = 128 + 2;
const TERMINATED: i32 = 128 + 15;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    load: noroshi_load::Args,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if self.load.measures() {
            end_with_a_signal().map_err(|error| Failure::failed(format!("signals: {error}")))?;
        }
        match noroshi_load::run(self.load) {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(noroshi_load::Error::Usage(text)) => Err(Failure::Usage(text)),
            Err(noroshi_load::Error::Unreachable { url, source }) => {
                Err(Failure::Unreachable { server: url, cause: source.to_string() })
            }
            Err(error) => Err(Failure::failed(error.to_string())),
        }
    }
}

/// On a signal, stops the server of the benchmark and deletes its folder.
fn end_with_a_signal() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    let wait = move || {
        let exit_code = runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => INTERRUPTED,
                _ = terminate.recv() => TERMINATED,
            }
        });
        noroshi_load::abandon(exit_code)
    };
    std::thread::Builder::new().name("bench-signals".to_owned()).spawn(wait).map(drop)
}
