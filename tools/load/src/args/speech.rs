//! How devices speak, and which server they speak to in place of ours. What does not go together is refused here,
//! before anything is started.

use clap::ValueEnum;

use super::{check, usage};
use crate::Error;
use crate::payload::When;

/// What devices speak with a node of ours.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Speech {
    /// What devices speak
    #[arg(long, value_enum)]
    pub(crate) protocol: Option<Protocol>,
    /// Where --server listens for MQTT, where that is what devices speak
    #[arg(long, value_name = "HOST:PORT", requires = "server")]
    pub(crate) mqtt: Option<String>,
    /// Where --server listens for XMPP
    #[arg(long, value_name = "HOST:PORT", requires = "server")]
    pub(crate) xmpp: Option<String>,
    /// The domain of a server that speaks XMPP and was not started here [default: localhost]
    #[arg(long, value_name = "DOMAIN", requires = "running")]
    pub(crate) xmpp_domain: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    /// Noroshi's own, over WebSocket
    #[default]
    Native,
    /// The same with permessage-deflate; a node that is started here needs --set gateway.websocket_deflate=true
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
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Protocol::Native => "native",
            Protocol::NativeDeflate => "native-deflate",
            Protocol::Sse => "sse",
            Protocol::Socketio => "socketio",
            Protocol::Mqtt => "mqtt",
            Protocol::Xmpp => "xmpp",
        }
    }

    /// Whether a node listens for it on an address of its own.
    pub(crate) fn has_own_address(self) -> bool {
        matches!(self, Protocol::Mqtt | Protocol::Xmpp)
    }
}

/// Another server in place of ours.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Foreign {
    /// Where devices connect to another server over WebSocket: ws://HOST:PORT/PATH; {device} is the name of the device
    #[arg(long, value_name = "URL", help_heading = FOREIGN, group = "running", conflicts_with_all = STARTED_HERE)]
    pub(crate) websocket: Option<String>,
    /// Where they connect to another MQTT server
    #[arg(long, value_name = "HOST:PORT", help_heading = FOREIGN, group = "running", conflicts_with_all = STARTED_HERE)]
    pub(crate) mqtt_server: Option<String>,
    /// Where they connect to another XMPP server, which lets them in without TLS
    #[arg(long, value_name = "HOST:PORT", help_heading = FOREIGN, group = "running", conflicts_with_all = STARTED_HERE)]
    pub(crate) xmpp_server: Option<String>,
    /// What devices log in with there, by MQTT or XMPP; {device} is the name of the device [default: MQTT: no name either; XMPP: the name]
    #[arg(long, value_name = "TEXT", help_heading = FOREIGN, hide_env_values = true)]
    pub(crate) password: Option<String>,
    /// A topic filter that each device subscribes to by MQTT besides the topic of all; {device} is the name of the device
    #[arg(long, value_name = "FILTER", help_heading = FOREIGN, requires = "mqtt_server")]
    pub(crate) inbox: Option<String>,
    /// A text frame that a device sends after the upgrade; several in this order
    #[arg(long, value_name = "TEXT", help_heading = FOREIGN, requires = "websocket")]
    pub(crate) hello: Vec<String>,
    /// A device is ready when a text frame has this in it [default: after the upgrade]
    #[arg(long, value_name = "TEXT", help_heading = FOREIGN, requires = "websocket")]
    pub(crate) ready: Option<String>,
    /// A text frame that is TEXT is answered with REPLY: a ping of the server's own
    #[arg(long, value_name = "TEXT=REPLY", help_heading = FOREIGN, requires = "websocket")]
    pub(crate) answer: Vec<String>,
    /// Where messages are published with POST [default: as text frames on a WebSocket of their own]
    #[arg(long, value_name = "URL", help_heading = FOREIGN, requires = "websocket")]
    pub(crate) publish_url: Option<String>,
    /// A header of those requests
    #[arg(long, value_name = "NAME: VALUE", help_heading = FOREIGN, requires = "publish_url")]
    pub(crate) publish_header: Vec<String>,
    /// The body of a request, or the text of a frame; {data} is what devices know a message by: letters, digits, '-'
    #[arg(long, value_name = "TEXT", help_heading = FOREIGN, requires = "websocket")]
    pub(crate) publish_body: Option<String>,
}

const FOREIGN: &str = "Another server";
/// Options of a server that is started here.
const STARTED_HERE: [&str; 3] = ["set", "data", "tls"];

impl Foreign {
    pub(crate) fn is_given(&self) -> bool {
        self.websocket.is_some() || self.mqtt_server.is_some() || self.xmpp_server.is_some()
    }

    /// `speech` is what was asked for beside it, `when` what is published, where the scenario does.
    pub(crate) fn check(&self, speech: &Speech, when: When) -> Result<(), Error> {
        let goes_with = |given: bool, protocol, rule| match speech.protocol {
            Some(asked) if given => check(asked == protocol, rule),
            _ => Ok(()),
        };
        let rule = "--websocket speaks as --hello and its like say: leave --protocol away";
        check(self.websocket.is_none() || speech.protocol.is_none(), rule)?;
        goes_with(self.mqtt_server.is_some(), Protocol::Mqtt, "--mqtt-server is for --protocol mqtt")?;
        goes_with(self.xmpp_server.is_some(), Protocol::Xmpp, "--xmpp-server is for --protocol xmpp")?;
        // Clap lets go of what an option requires where that would conflict with another one.
        let words = !self.hello.is_empty() || self.ready.is_some() || !self.answer.is_empty();
        let words = words || self.publish_url.is_some() || self.publish_body.is_some();
        let rule = "--hello, --ready, --answer and --publish-… are for --websocket";
        check(self.websocket.is_some() || !words, rule)?;
        check(self.mqtt_server.is_some() || self.inbox.is_none(), "--inbox is for --mqtt-server")?;
        let logs_in = self.mqtt_server.is_some() || self.xmpp_server.is_some();
        check(self.password.is_none() || logs_in, "--password is for --mqtt-server and --xmpp-server")?;
        let rule = "--when is what Noroshi's API is asked for, which another server does not have";
        check(!self.is_given() || when == When::Connected, rule)
    }
}

impl Speech {
    /// Native where nothing was asked for.
    pub(crate) fn protocol(&self) -> Protocol {
        self.protocol.unwrap_or_default()
    }

    pub(crate) fn xmpp_domain(&self) -> &str {
        self.xmpp_domain.as_deref().unwrap_or("localhost")
    }

    /// The address that was given for the protocol.
    pub(crate) fn address(&self) -> Option<&str> {
        match self.protocol() {
            Protocol::Mqtt => self.mqtt.as_deref(),
            Protocol::Xmpp => self.xmpp.as_deref(),
            Protocol::Native | Protocol::NativeDeflate | Protocol::Sse | Protocol::Socketio => None,
        }
    }

    /// `drives`: a node that runs already is measured.
    pub(crate) fn check(&self, drives: bool, when: When) -> Result<(), Error> {
        let protocol = self.protocol();
        check(self.mqtt.is_none() || protocol == Protocol::Mqtt, "--mqtt is for --protocol mqtt")?;
        check(self.xmpp.is_none() || protocol == Protocol::Xmpp, "--xmpp is for --protocol xmpp")?;
        if drives && protocol.has_own_address() && self.address().is_none() {
            let name = protocol.as_str();
            return Err(usage(format!(
                "--protocol {name} needs --{name} HOST:PORT: where --server listens for it"
            )));
        }
        let host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
        let rule = "--xmpp-domain is a name of letters, digits, '.' and '-'";
        check(self.xmpp_domain().chars().all(host), rule)?;
        let rule = "--protocol sse confirms nothing on its stream: measure --when connected";
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
    fn what_goes_together_is_taken() {
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
    fn what_makes_no_sense_names_the_option() {
        let server = "--server http://h:1 --key k --jwt-secret s";
        for (line, told) in [
            ("broadcast --protocol mqtt --websocket ws://h:1", "leave --protocol away"),
            ("broadcast --protocol xmpp --mqtt-server h:1", "--mqtt-server is for"),
            ("broadcast --protocol mqtt --xmpp-server h:1", "--xmpp-server is for"),
            ("broadcast --mqtt-server h:1 --websocket ws://h:1", "cannot be used with"),
            ("broadcast --mqtt-server h:1 --tls", "cannot be used with"),
            ("broadcast --mqtt-server h:1 --publish-body x", "are for --websocket"),
            ("broadcast --xmpp-server h:1 --inbox i", "--inbox is for"),
            ("broadcast --protocol mqtt --mqtt-server h:1 --mqtt h:2", "required"),
            ("broadcast --mqtt-server h:1 --when stored", "--when"),
            ("broadcast --password p", "--password is for"),
            ("broadcast --xmpp-domain d", "required"),
            ("broadcast --xmpp-server h:1 --xmpp-domain <d>", "--xmpp-domain is"),
            ("broadcast --protocol sse --when stored", "--protocol sse"),
            (&format!("broadcast --protocol mqtt {server}"), "--mqtt HOST:PORT"),
            (&format!("broadcast --protocol sse {server} --xmpp h:1"), "--xmpp is for"),
            ("broadcast --protocol mqtt --mqtt h:1", "--server"),
        ] {
            let error = checked(line).expect_err(line);
            assert!(error.contains(told), "{line}: {error}");
        }
    }
}
