//! The noroshi command: the server and its tools. This file parses the command line; each command is a file under `command/`.
//!
//! Exit codes are part of the contract and shown by `--help`: see [`failure`].

mod client;
mod command;
mod failure;
mod folder;
mod input;
mod ndjson;
mod output;

use std::process::ExitCode;

use clap::Parser;

use command::Command;

#[cfg(feature = "heap-profiling")]
#[global_allocator]
static ALLOCATOR: noroshi_profiling::heap::Jemalloc = noroshi_profiling::heap::Jemalloc;

#[cfg(all(feature = "mimalloc", not(feature = "heap-profiling")))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Self-hosted push notifications in one binary
#[derive(Debug, Parser)]
#[command(name = "noroshi", version, after_help = failure::EXIT_CODES, max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // The provider for all TLS connections of the process. It is installed only here, so this cannot fail.
    let _ = rustls::crypto::ring::default_provider().install_default();
    match arguments.command.run() {
        Ok(code) => code,
        Err(failure) => {
            if !matches!(failure, failure::Failure::OutputGone) {
                eprintln!("noroshi: {failure}");
            }
            ExitCode::from(failure.exit_code())
        }
    }
}
