//! `noroshi bench`: the load generator of the crate `load`.

use std::process::ExitCode;

use crate::failure::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    load: noroshi_load::Args,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
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
