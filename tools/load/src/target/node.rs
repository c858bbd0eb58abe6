//! A node: a running one, or one started here from our own executable, with its own folder and ports.

use super::{Kind, Target};
use crate::Error;
use crate::args::{Common, Protocol, Speech, word};
use crate::dialect::{self, Dialect, Password};
use crate::http::{Client, Origin};
use crate::process::Process;
use crate::program::{Owned, Signals};
use crate::server::{READYZ, free_port, random_hex, serve, speak_tls, wait_until_ready};
use crate::tls::Trust;

impl Target {
    /// Finds the node of `common`, or starts one, and waits until it is ready.
    pub(crate) fn node(common: &Common, speech: &Speech) -> Result<Self, Error> {
        let mut node = match &common.server {
            Some(url) => attach(common, url, speech)?,
            None => start(common, speech)?,
        };
        let protocol = speech.protocol();
        if protocol != Protocol::Native {
            node.description.push_str(&format!("; protocol of devices: {}", word(&protocol)));
        }
        Ok(node)
    }
}

fn attach(common: &Common, url: &str, speech: &Speech) -> Result<Target, Error> {
    let process = common.pid.map(Process::running).transpose()?;
    let admin = common.admin.as_deref().map(Origin::parse).transpose()?;
    if let Some(admin) = &admin {
        Client::new(admin.clone())?.expect_success(READYZ, b"")?;
    }
    let mut origin = Origin::parse(url)?;
    if let Some(path) = &common.ca {
        let trust = origin.trust.as_mut();
        *trust.ok_or_else(|| Error::Usage("--ca requires a --server with https://…".into()))? =
            Trust::read(path)?;
    }
    Ok(Target {
        devices: speech.address().map(|address| origin.beside(address)).transpose()?,
        dialect: dialect(speech),
        key: common.key.clone().unwrap_or_default(),
        jwt_secret: common.jwt_secret.clone().unwrap_or_default(),
        process,
        admin,
        description: origin.url(),
        origin,
        kind: Kind::Node,
        started: None,
    })
}

fn start(common: &Common, speech: &Speech) -> Result<Target, Error> {
    let protocol = speech.protocol();
    let parent = common.data.clone().unwrap_or_else(std::env::temp_dir);
    let folder = parent.join(format!("noroshi-bench-{}", random_hex(8)?));
    let (key, jwt_secret) = (random_hex(16)?, random_hex(32)?);
    let (http, admin) = (free_port()?, free_port()?);
    let mut origin = Origin::parse(&format!("http://127.0.0.1:{http}"))?;
    let admin_origin = Origin::parse(&format!("http://127.0.0.1:{admin}"))?;
    let mut command =
        serve(common.program.as_deref(), &folder, (http, admin), (&key, &jwt_secret), &common.set)?;
    let own_address = protocol.has_own_address().then(free_port).transpose()?;
    let own_address = own_address.map(|port| format!("127.0.0.1:{port}"));
    if let Some(address) = &own_address {
        // --mqtt, or --mqtts if everything uses TLS.
        let secure = if common.tls { "s" } else { "" };
        command.args([&format!("--{}{secure}", word(&protocol)), address]);
    }
    let started = Owned::start(&folder, Signals::USUAL, || {
        if common.tls {
            speak_tls(&mut command, &folder, &mut origin)?;
        }
        Ok(command)
    })?;
    wait_until_ready(&started, &admin_origin)?;
    Ok(Target {
        devices: own_address.map(|address| origin.beside(&address)).transpose()?,
        origin,
        dialect: dialect(speech),
        key,
        jwt_secret,
        process: Some(started.process()),
        admin: Some(admin_origin),
        description: format!("started here, data in {}", folder.display()),
        kind: Kind::Node,
        started: Some(started),
    })
}

/// The protocol with a node: devices log in with their token and receive their inbox.
fn dialect(speech: &Speech) -> Dialect {
    match speech.protocol() {
        Protocol::Native => Dialect::Native,
        Protocol::NativeDeflate => Dialect::Deflated,
        Protocol::Sse => Dialect::Events,
        Protocol::Socketio => Dialect::SocketIo,
        Protocol::Mqtt => Dialect::Mqtt(dialect::Mqtt {
            inbox: Some(noroshi_protocol::mqtt::INBOX_TOPIC.to_owned()),
            password: Password::Token,
        }),
        Protocol::Xmpp => Dialect::Xmpp(dialect::Xmpp {
            domain: speech.xmpp_domain().to_owned(),
            password: Password::Token,
            makes_node: false,
        }),
    }
}
