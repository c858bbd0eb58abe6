//! What is measured: a node of ours, the floor beneath it, or a server that other people wrote. Scenarios do
//! not know which; they ask here where it is, which process pays for it, and what became of it.

mod bare;
mod foreign;
mod push_service;

use crate::Error;
use crate::args::{self, Common};
use crate::dialect::Dialect;
use crate::http::Origin;
use crate::process::Process;
use crate::server::Server;
use bare::BareLoop;
use foreign::Foreign;
pub(crate) use foreign::{DATA, Publish};
pub(crate) use push_service::PushService;

pub(crate) enum Target {
    Noroshi(Server),
    Floor(BareLoop),
    Foreign(Foreign),
}

impl Target {
    /// The node that `common` names, or one of our own.
    pub(crate) fn node(common: &Common) -> Result<Self, Error> {
        Server::open(common).map(Self::Noroshi)
    }

    /// Writes a request to users to `deliveries` sockets.
    pub(crate) fn floor(deliveries: usize) -> Result<Self, Error> {
        BareLoop::start(deliveries).map(Self::Floor)
    }

    pub(crate) fn foreign(args: &args::Foreign, common: &Common) -> Result<Self, Error> {
        Foreign::new(args, common).map(Self::Foreign)
    }

    /// Where devices connect.
    pub(crate) fn origin(&self) -> &Origin {
        match self {
            Target::Noroshi(server) => &server.origin,
            Target::Floor(bare) => &bare.origin,
            Target::Foreign(foreign) => &foreign.origin,
        }
    }

    /// How devices speak, unless it is Noroshi's native protocol.
    pub(crate) fn dialect(&self) -> Option<&Dialect> {
        match self {
            Target::Foreign(foreign) => Some(&foreign.dialect),
            Target::Noroshi(_) | Target::Floor(_) => None,
        }
    }

    /// How it is published to, unless it is by Noroshi's API.
    pub(crate) fn publish(&self) -> Result<Option<&Publish>, Error> {
        let rule = "--publish-body says what is published to another server";
        match self {
            Target::Foreign(Foreign { publish, .. }) => {
                publish.as_ref().map(Some).ok_or_else(|| Error::Usage(rule.to_owned()))
            }
            Target::Noroshi(_) | Target::Floor(_) => Ok(None),
        }
    }

    /// The API key and the secret of tokens; others ask for neither.
    pub(crate) fn credentials(&self) -> (&str, &str) {
        match self {
            Target::Noroshi(server) => (&server.key, &server.jwt_secret),
            Target::Floor(_) | Target::Foreign(_) => ("", ""),
        }
    }

    /// Where its metrics can be asked for, if that is known.
    pub(crate) fn admin(&self) -> Option<&Origin> {
        match self {
            Target::Noroshi(server) => server.admin.as_ref(),
            Target::Floor(_) | Target::Foreign(_) => None,
        }
    }

    /// None where it is not known: then there are no figures of CPU and memory.
    pub(crate) fn process(&self) -> Option<Process> {
        match self {
            Target::Noroshi(server) => server.process,
            Target::Floor(bare) => Some(bare.process()),
            Target::Foreign(foreign) => foreign.process,
        }
    }

    /// Whether devices exist there apart from their connections.
    pub(crate) fn keeps_devices(&self) -> bool {
        matches!(self, Target::Noroshi(_))
    }

    /// Whether it keeps devices and was started here.
    pub(crate) fn can_restart(&self) -> bool {
        matches!(self, Target::Noroshi(server) if server.is_own())
    }

    /// Starts it again on the same data, with fresh memory, where that is possible.
    pub(crate) fn restart(&mut self) -> Result<(), Error> {
        match self {
            Target::Noroshi(server) => server.restart(),
            Target::Floor(_) | Target::Foreign(_) => Ok(()),
        }
    }

    /// How it ended, if it was started here and did.
    pub(crate) fn exited(&mut self) -> Option<String> {
        match self {
            Target::Noroshi(server) => server.exited(),
            Target::Floor(bare) => bare.exited(),
            Target::Foreign(_) => None,
        }
    }

    pub(crate) fn last_words(&self) -> String {
        match self {
            Target::Noroshi(server) => server.last_words(),
            Target::Floor(_) | Target::Foreign(_) => String::new(), // the floor's went to standard error
        }
    }

    /// Named in the report.
    pub(crate) fn describe(&self) -> String {
        match self {
            Target::Noroshi(server) => server.describe(),
            Target::Foreign(foreign) => {
                format!("{}{}", foreign.origin.url().replacen("http", "ws", 1), foreign.dialect.path)
            }
            Target::Floor(_) => "a bare epoll loop (noroshi bench floor)".to_owned(),
        }
    }

    /// What the reader has to know of it.
    pub(crate) fn notes(&self) -> Vec<String> {
        let in_memory =
            "the data folder is in memory: what waits for the disk costs less than it will (--data)";
        match self {
            Target::Noroshi(server) if server.data_in_memory() == Some(true) => vec![in_memory.to_owned()],
            _ => Vec::new(),
        }
    }
}
