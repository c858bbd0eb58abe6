//! The protocol of the devices, and options for measuring a foreign server. Invalid combinations are rejected
//! before anything starts.

use clap::ValueEnum;

use super::{check, usage, word};
use crate::Error;
use crate::payload::When;

/// The protocol between devices and a Noroshi node.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Speech {
    /// Protocol of the devices
    #[arg(long, value_enum)]
    pub(crate) protocol: Option<Protocol>,
    /// MQTT address of --server, for --protocol mqtt
    #[arg(long, value_name = "HOST:PORT", requires = "server")]
    pub(crate) mqtt: Option<String>,
    /// XMPP address of --server
    #[arg(long, value_name = "HOST:PORT", requires = "server")]
    pub(crate) xmpp: Option<String>,
    /// XMPP domain of a server that was not started here [default: localhost]
    #[arg(long, value_name = "DOMAIN", requires = "running")]
    pub(crate) xmpp_domain: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    /// Noroshi's native protocol over WebSocket
    #[default]
    Native,
    /// The native protocol with permessage-deflate; a started node needs --set gateway.websocket_deflate=true
    NativeDeflate,
    /// Server-sent events
    Sse,
    /// Socket.IO over WebSocket
    Socketio,
    /// MQTT 3.1.1 over TCP, or TLS with --tls
    Mqtt,
    /// XMPP over TCP, or TLS with --tls
    Xmpp,
}

impl Protocol {
    /// Whether a node has a separate address for it.
    pub(crate) fn has_own_address(self) -> bool {
        matches!(self, Protocol::Mqtt | Protocol::Xmpp)
    }
}

/// A foreign server instead of Noroshi.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Foreign {
    /// WebSocket address of a foreign server: ws://HOST:PORT/PATH; {device} is replaced by the device name
    #[arg(long, value_name = "URL", help_heading = FOREIGN, group = "running", conflicts_with_all = STARTED_HERE)]
    pub(crate) websocket: Option<String>,
    /// Address of a foreign MQTT server
    #[arg(long, value_name = "HOST:PORT", help_heading = FOREIGN, group = "running", conflicts_with_all = STARTED_HERE)]
    pub(crate) mqtt_server: Option<String>,
    /// Address of a foreign XMPP server that permits log-ins without TLS
    #[arg(long, value_name = "HOST:PORT", help_heading = FOREIGN, group = "running", conflicts_with_all = STARTED_HERE)]
    pub(crate) xmpp_server: Option<String>,
    /// Password for MQTT or XMPP; {device} is replaced by the device name [default: MQTT: neither user name
    /// nor password; XMPP: the device name]
    #[arg(long, value_name = "TEXT", help_heading = FOREIGN, hide_env_values = true)]
    pub(crate) password: Option<String>,
    /// MQTT topic filter that each device subscribes to in addition to the common topic; {device} is replaced
    /// by the device name
    #[arg(long, value_name = "FILTER", help_heading = FOREIGN, requires = "mqtt_server")]
    pub(crate) inbox: Option<String>,
    /// Text frame to send after the upgrade; may be repeated
    #[arg(long, value_name = "TEXT", help_heading = FOREIGN, requires = "websocket")]
    pub(crate) hello: Vec<String>,
    /// Text that marks the frame which makes a device ready [default: ready after the upgrade]
    #[arg(long, value_name = "TEXT", help_heading = FOREIGN, requires = "websocket")]
    pub(crate) ready: Option<String>,
    /// Reply to a text frame TEXT with REPLY, such as a ping of the server
    #[arg(long, value_name = "TEXT=REPLY", help_heading = FOREIGN, requires = "websocket")]
    pub(crate) answer: Vec<String>,
    /// URL to publish messages to with POST [default: text frames on a separate WebSocket]
    #[arg(long, value_name = "URL", help_heading = FOREIGN, requires = "websocket")]
    pub(crate) publish_url: Option<String>,
    /// A header of these requests
    #[arg(long, value_name = "NAME: VALUE", help_heading = FOREIGN, requires = "publish_url")]
    pub(crate) publish_header: Vec<String>,
    /// Body of a request or text of a frame; {data} is replaced by the message's payload of letters, digits
    /// and '-'
    #[arg(long, value_name = "TEXT", help_heading = FOREIGN, requires = "websocket")]
    pub(crate) publish_body: Option<String>,
}

const FOREIGN: &str = "Another server";
/// Options of a started server.
const STARTED_HERE: [&str; 4] = ["set", "data", "program", "tls"];

impl Foreign {
    pub(crate) fn is_given(&self) -> bool {
        self.websocket.is_some() || self.mqtt_server.is_some() || self.xmpp_server.is_some()
    }

    /// `speech`: the other protocol options; `when`: the policy of published messages.
    pub(crate) fn check(&self, speech: &Speech, when: When) -> Result<(), Error> {
        let goes_with = |given: bool, protocol, rule| match speech.protocol {
            Some(asked) if given => check(asked == protocol, rule),
            _ => Ok(()),
        };
        let rule = "--websocket uses --hello and similar options: omit --protocol";
        check(self.websocket.is_none() || speech.protocol.is_none(), rule)?;
        goes_with(self.mqtt_server.is_some(), Protocol::Mqtt, "--mqtt-server requires --protocol mqtt")?;
        goes_with(self.xmpp_server.is_some(), Protocol::Xmpp, "--xmpp-server requires --protocol xmpp")?;
        // Clap ignores `requires` if the required option conflicts with another one.
        let words = !self.hello.is_empty() || self.ready.is_some() || !self.answer.is_empty();
        let words = words || self.publish_url.is_some() || self.publish_body.is_some();
        let rule = "--hello, --ready, --answer and --publish-… require --websocket";
        check(self.websocket.is_some() || !words, rule)?;
        check(self.mqtt_server.is_some() || self.inbox.is_none(), "--inbox requires --mqtt-server")?;
        let logs_in = self.mqtt_server.is_some() || self.xmpp_server.is_some();
        check(self.password.is_none() || logs_in, "--password requires --mqtt-server or --xmpp-server")?;
        let rule = "--when is a policy of Noroshi's API, which a foreign server does not have";
        check(!self.is_given() || when == When::Connected, rule)
    }
}

impl Speech {
    /// The native protocol by default.
    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol.unwrap_or_default()
    }

    pub(crate) fn xmpp_domain(&self) -> &str {
        self.xmpp_domain.as_deref().unwrap_or("localhost")
    }

    /// The address of the protocol, if given.
    pub(crate) fn address(&self) -> Option<&str> {
        match self.protocol() {
            Protocol::Mqtt => self.mqtt.as_deref(),
            Protocol::Xmpp => self.xmpp.as_deref(),
            Protocol::Native | Protocol::NativeDeflate | Protocol::Sse | Protocol::Socketio => None,
        }
    }

    /// `drives`: a running node is measured.
    pub(crate) fn check(&self, drives: bool, when: When) -> Result<(), Error> {
        let protocol = self.protocol();
        check(self.mqtt.is_none() || protocol == Protocol::Mqtt, "--mqtt requires --protocol mqtt")?;
        check(self.xmpp.is_none() || protocol == Protocol::Xmpp, "--xmpp requires --protocol xmpp")?;
        if drives && protocol.has_own_address() && self.address().is_none() {
            let name = word(&protocol);
            return Err(usage(format!("--protocol {name} with --server requires --{name} HOST:PORT")));
        }
        let host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
        let rule = "--xmpp-domain may only contain letters, digits, '.' and '-'";
        check(self.xmpp_domain().chars().all(host), rule)?;
        let rule = "--protocol sse cannot acknowledge messages on its stream: use --when connected";
        check(protocol != Protocol::Sse || when == When::Connected, rule)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use crate::args::{Args, Scenario};

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn checked(line: &str) -> Result<(), String> {
        let words = std::iter::once("bench").chain(line.split_whitespace());
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        let Scenario::Broadcast(args) = cli.args.scenario else { panic!("broadcast") };
        args.foreign.check(&args.speech, args.when).map_err(|error| error.to_string())?;
        let drives = args.common.server.is_some();
        args.speech.check(drives, args.when).map_err(|error| error.to_string())
    }

    #[test]
    fn valid_combinations_are_accepted() {
        for line in [
            "broadcast --protocol sse --floor --tls",
            "broadcast --protocol socketio --when stored --processes 2",
            "broadcast --protocol mqtt --server http://h:1 --key k --jwt-secret s --mqtt h:2",
            "broadcast --protocol mqtt --mqtt-server h:1 --password p --pid 1",
            "broadcast --xmpp-server h:1 --xmpp-domain example.org",
        ] {
            assert_eq!(checked(line), Ok(()), "{line}");
        }
    }

    #[test]
    fn invalid_combinations_name_the_option() {
        let server = "--server http://h:1 --key k --jwt-secret s";
        for (line, told) in [
            ("broadcast --protocol mqtt --websocket ws://h:1", "omit --protocol"),
            ("broadcast --protocol xmpp --mqtt-server h:1", "--mqtt-server requires"),
            ("broadcast --protocol mqtt --xmpp-server h:1", "--xmpp-server requires"),
            ("broadcast --mqtt-server h:1 --websocket ws://h:1", "cannot be used with"),
            ("broadcast --mqtt-server h:1 --tls", "cannot be used with"),
            ("broadcast --mqtt-server h:1 --publish-body x", "require --websocket"),
            ("broadcast --xmpp-server h:1 --inbox i", "--inbox requires"),
            ("broadcast --protocol mqtt --mqtt-server h:1 --mqtt h:2", "required"),
            ("broadcast --mqtt-server h:1 --when stored", "--when"),
            ("broadcast --password p", "--password requires"),
            ("broadcast --xmpp-domain d", "required"),
            ("broadcast --xmpp-server h:1 --xmpp-domain <d>", "--xmpp-domain may"),
            ("broadcast --protocol sse --when stored", "--protocol sse"),
            (&format!("broadcast --protocol mqtt {server}"), "--mqtt HOST:PORT"),
            (&format!("broadcast --protocol sse {server} --xmpp h:1"), "--xmpp requires"),
            ("broadcast --protocol mqtt --mqtt h:1", "--server"),
        ] {
            let error = checked(line).expect_err(line);
            assert!(error.contains(told), "{line}: {error}");
        }
    }
}
