//! `noroshi campaign upload`: adds recipients from a file to a campaign that has not started.

use std::path::{Path, PathBuf};

use super::{Named, PATH, print};
use crate::client::{Client, escape};
use crate::failure::Failure;
use crate::ndjson;

const HELP: &str = "\
A line of the file is {\"user\":\"u1\",\"variables\":{\"name\":\"Ana\"}}, or has its own notification. The campaign must be a \
draft, or scheduled, with the audience \"upload\" (noroshi campaign create --upload FILE --draft). A later line of the same \
user replaces the earlier one, so an interrupted upload can be repeated. Rejected lines are printed with their reason and \
end the command with exit code 1; the other lines are stored.";

#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    #[command(flatten)]
    named: Named,
    /// File with a recipient per line, as JSON; - for standard input
    file: PathBuf,
}

impl Arguments {
    /// Prints the campaign with the number of its lines.
    pub(super) async fn run(self) -> Result<(), Failure> {
        let client = self.named.server.connect.client()?;
        let refused = send(&client, &self.named.id, &self.file).await?;
        print(&client.get(&self.named.path()).await?, self.named.server.format)?;
        match refused {
            0 => Ok(()),
            _ => Err(Failure::failed(format!("{refused} lines were rejected; the other lines are stored"))),
        }
    }
}

/// Returns the number of rejected lines. Prints the reasons to standard error.
pub(super) async fn send(client: &Client, id: &str, file: &Path) -> Result<u64, Failure> {
    let path = format!("{PATH}/{}/recipients", escape(id));
    let (_, refused) = ndjson::send(client, &path, file, |_| Ok(())).await?;
    Ok(refused)
}
