//! The measured target: a Noroshi node, the floor, or a foreign server. Scenarios do not know which; they use
//! this interface for its address, its process and its state.

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
    /// The node that `common` names, or a started one.
    pub(crate) fn node(common: &Common, speech: &Speech) -> Result<Self, Error> {
        Server::open(common, speech).map(Self::Noroshi)
    }

    /// The floor, which writes a request to users to `deliveries` sockets.
    pub(crate) fn floor(deliveries: usize) -> Result<Self, Error> {
        BareLoop::start(deliveries).map(Self::Floor)
    }

    pub(crate) fn foreign(args: &args::Foreign, common: &Common, speech: &Speech) -> Result<Self, Error> {
        Foreign::new(args, common, speech).map(Self::Foreign)
    }

    /// Its HTTP address, or the equivalent.
    pub(crate) fn origin(&self) -> &Origin {
        match self {
            Target::Noroshi(server) => &server.origin,
            Target::Floor(bare) => &bare.origin,
            Target::Foreign(foreign) => &foreign.origin,
        }
    }

    /// The devices' address, if it differs.
    pub(crate) fn devices(&self) -> Option<&Origin> {
        match self {
            Target::Noroshi(server) => server.devices.as_ref(),
            Target::Floor(_) | Target::Foreign(_) => None,
        }
    }

    /// The protocol of its devices; the floor supports only the native one.
    pub(crate) fn dialect(&self) -> Dialect {
        match self {
            Target::Noroshi(server) => own_dialect(server.protocol, &server.xmpp_domain),
            Target::Floor(_) => Dialect::Native,
            Target::Foreign(foreign) => foreign.dialect.clone(),
        }
    }

    /// How to publish, unless with Noroshi's API.
    pub(crate) fn publish(&self) -> Result<Option<&Publish>, Error> {
        let rule = "publishing to a foreign server requires --publish-body";
        match self {
            Target::Foreign(Foreign { publish, .. }) => {
                publish.as_ref().map(Some).ok_or_else(|| Error::Usage(rule.to_owned()))
            }
            Target::Noroshi(_) | Target::Floor(_) => Ok(None),
        }
    }

    /// The API key and the secret of tokens; other targets need neither.
    pub(crate) fn credentials(&self) -> (&str, &str) {
        match self {
            Target::Noroshi(server) => (&server.key, &server.jwt_secret),
            Target::Floor(_) | Target::Foreign(_) => ("", ""),
        }
    }

    /// The address of its metrics, if known.
    pub(crate) fn admin(&self) -> Option<&Origin> {
        match self {
            Target::Noroshi(server) => server.admin.as_ref(),
            Target::Floor(_) | Target::Foreign(_) => None,
        }
    }

    /// `None` if unknown: then there are no CPU and memory figures.
    pub(crate) fn process(&self) -> Option<Process> {
        match self {
            Target::Noroshi(server) => server.process,
            Target::Floor(bare) => Some(bare.process()),
            Target::Foreign(foreign) => foreign.process,
        }
    }

    /// Whether it stores devices.
    pub(crate) fn keeps_devices(&self) -> bool {
        matches!(self, Target::Noroshi(_))
    }

    /// The operator token of a started node.
    pub(crate) fn operator_token(&self) -> Option<String> {
        match self {
            Target::Noroshi(server) => server.operator_token(),
            Target::Floor(_) | Target::Foreign(_) => None,
        }
    }

    /// Whether it stores devices and was started here.
    pub(crate) fn can_restart(&self) -> bool {
        matches!(self, Target::Noroshi(server) if server.is_own())
    }

    /// Restarts it on the same data, with fresh memory, if possible.
    pub(crate) fn restart(&mut self) -> Result<(), Error> {
        match self {
            Target::Noroshi(server) => server.restart(),
            Target::Floor(_) | Target::Foreign(_) => Ok(()),
        }
    }

    /// The exit status, if it was started here and has exited.
    pub(crate) fn exited(&mut self) -> Option<String> {
        match self {
            Target::Noroshi(server) => server.exited(),
            Target::Floor(bare) => bare.exited(),
            Target::Foreign(_) => None,
        }
    }

    pub(crate) fn log_end(&self) -> String {
        match self {
            Target::Noroshi(server) => server.log_end(),
            Target::Floor(_) | Target::Foreign(_) => String::new(), // the floor writes to standard error
        }
    }

    /// The description for the report.
    pub(crate) fn describe(&self) -> String {
        match self {
            Target::Noroshi(server) if server.protocol == Protocol::Native => server.describe(),
            Target::Noroshi(server) => {
                format!("{}; protocol of devices: {}", server.describe(), server.protocol.as_str())
            }
            Target::Foreign(foreign) => foreign.describe(),
            Target::Floor(_) => "a bare epoll loop (noroshi bench floor)".to_owned(),
        }
    }

    /// Caveats for the report.
    pub(crate) fn notes(&self) -> Vec<String> {
        let in_memory = "the data folder is in memory: writes are cheaper than on disk (use --data)";
        match self {
            Target::Noroshi(server) if server.data_in_memory() == Some(true) => vec![in_memory.to_owned()],
            _ => Vec::new(),
        }
    }
}

/// The protocol with a node: devices log in with their token and receive their inbox.
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
