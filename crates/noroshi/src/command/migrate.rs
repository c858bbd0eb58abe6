//! `noroshi migrate`: copies the data folder of a stopped node into an empty PostgreSQL database, for use by several nodes. Shows a
//! progress bar on a terminal, otherwise a line for each table, and prints the required configuration.

use std::io::IsTerminal;
use std::path::PathBuf;

use indicatif::{HumanCount, ProgressBar};
use noroshi_node::migrate::{Migrated, Progress, migrate};
use serde_json::json;

use crate::failure::Failure;
use crate::output;

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Data folder of the stopped node; not modified
    #[arg(long, value_name = "DATA_FOLDER")]
    from: PathBuf,
    /// Empty database: postgres://USER:PASSWORD@HOST/DATABASE
    #[arg(long, env = "NOROSHI__STORE__URL", hide_env_values = true, value_name = "URL")]
    to: String,
    #[command(flatten)]
    format: output::Format,
}

impl Arguments {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let mut shown = ProgressDisplay::new(self.format);
        let migrated = migrate(&self.from, &self.to, |progress| shown.update(progress)).await;
        shown.end();
        let migrated = migrated.map_err(|error| Failure::failed(error.to_string()))?;
        self.report(&migrated)
    }

    fn report(&self, migrated: &Migrated) -> Result<(), Failure> {
        let Migrated { server, tables, credentials } = migrated;
        let rows: u64 = tables.iter().map(|(_, rows)| rows).sum();
        if self.format.json {
            let tables: serde_json::Map<_, _> =
                tables.iter().map(|(name, rows)| (name.clone(), json!(rows))).collect();
            return output::line(json!({
                "server": server, "rows": rows, "tables": tables, "push_credentials": credentials,
            }));
        }
        output::line(format_args!("{} rows copied to {server} and verified", HumanCount(rows)))?;
        output::line("\nSet in noroshi.toml of every node:\n")?;
        output::line("  [store]\n  url = \"postgres://…\"   # as given to --to")?;
        output::line(format_args!(
            "\nNodes that know of each other also need cluster.redis. Start the first one with server.data = {:?} or an \
             empty folder,\nand never start a node without store.url on the old folder again: it would go on from here \
             by itself.",
            self.from.display().to_string()
        ))?;
        if *credentials > 0 {
            output::line(format_args!(
                "\n{credentials} push credentials stay sealed: give every node the same push.key_file as before."
            ))?;
        }
        Ok(())
    }
}

/// A bar on a terminal, lines otherwise, nothing with JSON.
struct ProgressDisplay {
    bar: ProgressBar,
    lines: bool,
    table: String,
}

impl ProgressDisplay {
    fn new(format: output::Format) -> Self {
        let bar = format.progress(None, "{bar:40} {percent:>3}%  {msg}  {human_pos} rows  {elapsed}");
        Self { bar, lines: !std::io::stderr().is_terminal() && !format.json, table: String::new() }
    }

    fn update(&mut self, progress: Progress<'_>) {
        let Progress { table, rows, rows_total } = progress;
        self.bar.set_length(rows_total);
        self.bar.set_position(rows);
        if self.table != table {
            table.clone_into(&mut self.table);
            self.bar.set_message(table.to_owned());
            if self.lines {
                eprintln!("{table} ({} of {} rows copied so far)", HumanCount(rows), HumanCount(rows_total));
            }
        }
    }

    fn end(&self) {
        self.bar.finish_and_clear();
    }
}
