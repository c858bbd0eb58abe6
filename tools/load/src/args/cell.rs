//! Options of measurements with a cell of several nodes: its engines, its program, and the settings of its nodes.

use std::path::PathBuf;

use crate::Error;

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct CellArgs {
    /// PostgreSQL database, which must be empty [default: start one]
    #[arg(long, value_name = "URL")]
    pub(crate) postgres: Option<String>,
    /// Setting of the started PostgreSQL
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "postgres")]
    pub(crate) postgres_set: Vec<String>,
    /// Redis [default: start one]
    #[arg(long, value_name = "URL")]
    pub(crate) redis: Option<String>,
    /// Executable of the nodes, such as another version's [default: this one]
    #[arg(long, value_name = "FILE")]
    pub(crate) program: Option<PathBuf>,
    /// Setting of all nodes, as for `noroshi serve`
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Setting of gateway nodes
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set_gateway: Vec<String>,
    /// Setting of API nodes
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set_api: Vec<String>,
    /// Parent of the data folders [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
}

impl CellArgs {
    pub(crate) fn check(&self) -> Result<(), Error> {
        super::check_data(self.data.as_deref())
    }

    /// The parent of all data folders.
    pub(crate) fn parent(&self) -> PathBuf {
        self.data.clone().unwrap_or_else(std::env::temp_dir)
    }
}
