//! The cells of a front, in a separate TOML file since it contains a credential for each; and the rules of Amazon SQS.

use std::path::Path;

use noroshi_cells::CellConfig;
use serde::Deserialize;

use super::reader::Reader;
use super::{Front, Queue, Role, Sqs};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    cell: Vec<Cell>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cell {
    name: String,
    urls: Vec<String>,
    admin_url: String,
    operator_token: String,
    public_url: Option<String>,
    #[serde(default = "weight")]
    weight: u32,
}

fn weight() -> u32 {
    1
}

impl Front {
    /// Reads the file if this node is a front.
    pub(super) fn complete(&mut self, reader: &mut Reader, is_front: bool) {
        let Some(path) = &self.cells_file else {
            if is_front {
                reader.problem("front.cells_file", format!("required by the role {}", Role::Front.as_str()));
            }
            return;
        };
        match read(path) {
            Ok(cells) => self.cells = cells,
            Err(reason) => {
                return reader.problem("front.cells_file", format!("{}: {reason}", path.display()));
            }
        }
        let config = noroshi_cells::Config { cells: self.cells.clone(), ..Default::default() };
        for (field, rule) in config.problems() {
            let field = field.replace("cells[", "cell[");
            reader.problem("front.cells_file", format!("{}: {field}: {rule}", path.display()));
        }
    }
}

impl Sqs {
    pub(super) fn check(&self, reader: &mut Reader, queue: Queue) {
        let used = [
            (queue == Queue::Sqs).then(|| ("push.queue", "sqs.queue_prefix", self.queue.check())),
            self.intake.as_ref().map(|intake| {
                let key = "intake.sqs.queue_url";
                (key, key, intake.check())
            }),
        ];
        for (chosen, key, checked) in used.into_iter().flatten() {
            if !noroshi_sqs::AVAILABLE {
                reader.problem(chosen, "this build does not include Amazon SQS (feature `sqs`); `make dist` builds one that does");
            }
            if let Err(problem) = checked {
                reader.problem(key, problem);
            }
        }
    }
}

fn read(path: &Path) -> Result<Vec<CellConfig>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))?;
    // Only line and column of the parser's message: it quotes the line, which may contain the token.
    let file: File = toml::from_str(&text).map_err(|error| error.message().to_owned())?;
    let cell = |cell: Cell| CellConfig {
        name: cell.name,
        urls: cell.urls,
        admin_url: cell.admin_url,
        operator_token: cell.operator_token,
        public_url: cell.public_url,
        weight: cell.weight,
    };
    Ok(file.cell.into_iter().map(cell).collect())
}
