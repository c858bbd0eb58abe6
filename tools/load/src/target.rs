//! What is measured: a node of ours, the floor beneath it, or a server that other people wrote. Scenarios do
//! not know which; they ask here where it is, which process pays for it, and what became of it.

mod bare;
mod foreign;
mod push_service;

use crate::Error;
use crate::args::{self, Common, Protocol, Speech};
use crate::dialect::{self, Dialect, Password};
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
    pub(crate) fn node(common: &Common, speech: &Speech) -> Result<Self, Error> {
        Server::open(common, speech).map(Self::Noroshi)
    }

    /// Writes a request to users to `deliveries` sockets.
    pub(crate) fn floor(deliveries: usize) -> Result<Self, Error> {
        BareLoop::start(deliveries).map(Self::Floor)
    }

    pub(crate) fn foreign(args: &args::Foreign, common: &Common, speech: &Speech) -> Result<Self, Error> {
        Foreign::new(args, common, speech).map(Self::Foreign)
    }

    /// Where its HTTP is, or what it has in place of it.
    pub(crate) fn origin(&self) -> &Origin {
        match self {
            Target::Noroshi(server) => &server.origin,
            Target::Floor(bare) => &bare.origin,
            Target::Foreign(foreign) => &foreign.origin,
        }
    }

    /// Where devices connect, if it is elsewhere.
    pub(crate) fn devices(&self) -> Option<&Origin> {
        match self {
            Target::Noroshi(server) => server.devices.as_ref(),
            Target::Floor(_) | Target::Foreign(_) => None,
        }
    }

    /// How devices speak with it; the floor knows nothing but the native protocol.
    pub(crate) fn dialect(&self) -> Dialect {
        match self {
            Target::Noroshi(server) => own_dialect(server.protocol, &server.xmpp_domain),
            Target::Floor(_) => Dialect::Native,
            Target::Foreign(foreign) => foreign.dialect.clone(),
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

    /// Of the operator of a node that was started here.
    pub(crate) fn operator_token(&self) -> Option<String> {
        match self {
            Target::Noroshi(server) => server.operator_token(),
            Target::Floor(_) | Target::Foreign(_) => None,
        }
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
            Target::Noroshi(server) if server.protocol == Protocol::Native => server.describe(),
            Target::Noroshi(server) => {
                format!("{}; devices speak {}", server.describe(), server.protocol.as_str())
            }
            Target::Foreign(foreign) => foreign.describe(),
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

/// How a device speaks with a node: it logs in with its token, and hears its inbox.
fn own_dialect(protocol: Protocol, xmpp_domain: &str) -> Dialect {
    match protocol {
        Protocol::Native => Dialect::Native,
        Protocol::NativeDeflate => Dialect::Deflated,
        Protocol::Sse => Dialect::Events,
        Protocol::Socketio => Dialect::SocketIo,
        Protocol::Mqtt => Dialect::Mqtt(dialect::Mqtt {
            inbox: Some(noroshi_protocol::mqtt::INBOX_TOPIC.to_owned()),
            password: Password::Token,
        }),
        Protocol::Xmpp => Dialect::Xmpp(dialect::Xmpp {
            domain: xmpp_domain.to_owned(),
            password: Password::Token,
            makes_node: false,
        }),
    }
}
