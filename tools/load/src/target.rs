//! The measured target: a Noroshi node, the floor, or a foreign server. Scenarios do not know which; they use
//! this interface for its address, its process and its state.

mod bare;
mod foreign;
mod node;
mod push_service;

use crate::Error;
use crate::dialect::Dialect;
use crate::http::Origin;
use crate::process::Process;
use crate::program::Owned;
use crate::server::{in_memory, wait_until_ready};
pub(crate) use foreign::{DATA, Publish};
pub(crate) use push_service::PushService;

pub(crate) struct Target {
    /// Its HTTP address, or the equivalent.
    pub(crate) origin: Origin,
    /// The devices' address, if it is not `origin`.
    pub(crate) devices: Option<Origin>,
    /// The protocol of its devices.
    pub(crate) dialect: Dialect,
    /// The API key and the secret of tokens; only a node needs them.
    pub(crate) key: String,
    pub(crate) jwt_secret: String,
    /// `None` if unknown: then there are no CPU and memory figures.
    pub(crate) process: Option<Process>,
    /// The address of its metrics, if known.
    pub(crate) admin: Option<Origin>,
    /// The description for the report.
    pub(crate) description: String,
    kind: Kind,
    /// Set for a node or a floor that was started here.
    started: Option<Owned>,
}

enum Kind {
    Node,
    Floor,
    /// `None` if publishing is not configured; some scenarios do not publish.
    Foreign(Option<Publish>),
}

impl Target {
    /// How to publish, unless with Noroshi's API.
    pub(crate) fn publish(&self) -> Result<Option<&Publish>, Error> {
        match &self.kind {
            Kind::Foreign(None) => {
                Err(Error::Usage("publishing to a foreign server requires --publish-body".to_owned()))
            }
            Kind::Foreign(publish) => Ok(publish.as_ref()),
            Kind::Node | Kind::Floor => Ok(None),
        }
    }

    /// Whether it stores devices.
    pub(crate) fn keeps_devices(&self) -> bool {
        matches!(self.kind, Kind::Node)
    }

    /// The operator token of a started node.
    pub(crate) fn operator_token(&self) -> Option<String> {
        let path = self.started.as_ref()?.folder().join("data").join("operator.token");
        std::fs::read_to_string(path).ok().map(|token| token.trim().to_owned())
    }

    /// Whether it stores devices and was started here.
    pub(crate) fn can_restart(&self) -> bool {
        self.keeps_devices() && self.started.is_some()
    }

    /// Restarts a started node on the same data, with fresh memory.
    pub(crate) fn restart(&mut self) -> Result<(), Error> {
        let (Some(started), Some(admin)) = (&self.started, &self.admin) else { return Ok(()) };
        started.restart()?;
        self.process = Some(started.process());
        wait_until_ready(started, admin)
    }

    /// The exit status, if it was started here and has exited.
    pub(crate) fn exited(&self) -> Option<String> {
        self.started.as_ref()?.exited()
    }

    /// The end of its log, if it was started here.
    pub(crate) fn log_end(&self) -> String {
        self.started.as_ref().map(Owned::log_end).unwrap_or_default()
    }

    /// Caveats for the report.
    pub(crate) fn notes(&self) -> Vec<String> {
        let note = "the data folder is in memory: writes are cheaper than on disk (use --data)";
        let started = self.started.as_ref().filter(|_| self.keeps_devices());
        let is_in_memory = started.and_then(|started| in_memory(started.folder())) == Some(true);
        is_in_memory.then(|| note.to_owned()).into_iter().collect()
    }
}
