//! A foreign server as configured on the command line: the devices' address and protocol, how to publish, and
//! its process. A WebSocket protocol is described by text frames; MQTT and XMPP need no description, and an
//! additional device publishes.

use super::{Kind, Target};
use crate::Error;
use crate::args::{self, Common};
use crate::dialect::{DEVICE, Dialect, Frames, Mqtt, Password, Xmpp};
use crate::http::Origin;
use crate::process::Process;

/// How to publish to all devices. `{data}` is replaced by the message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Publish {
    Post {
        origin: Origin,
        path: String,
        headers: Vec<(String, String)>,
        body: String,
    },
    /// Sent by an additional device.
    Frame(String),
}

/// Placeholder for the message.
pub(crate) const DATA: &str = "{data}";

impl Target {
    pub(crate) fn foreign(
        args: &args::Foreign,
        common: &Common,
        speech: &args::Speech,
    ) -> Result<Self, Error> {
        let by_device = |scheme: &str, address: &str, dialect| {
            let origin = Origin::parse_address(address)?;
            let description = format!("{scheme}://{}", origin.host);
            Ok((origin, dialect, Some(Publish::Frame(DATA.to_owned())), description))
        };
        let (origin, dialect, publish, description) = match (&args.mqtt_server, &args.xmpp_server) {
            (Some(address), _) => by_device("mqtt", address, mqtt(args))?,
            (None, Some(address)) => by_device("xmpp", address, xmpp(args, speech.xmpp_domain()))?,
            (None, None) => websocket(args)?,
        };
        Ok(Self {
            origin,
            devices: None,
            dialect,
            key: String::new(),
            jwt_secret: String::new(),
            process: common.pid.map(Process::running).transpose()?,
            admin: None,
            description,
            kind: Kind::Foreign(publish),
            started: None,
        })
    }
}

/// The server's address, its protocol, how to publish, and its description.
type Configured = (Origin, Dialect, Option<Publish>, String);

fn websocket(args: &args::Foreign) -> Result<Configured, Error> {
    let url = args.websocket.as_deref().unwrap_or_default();
    let http = url.strip_prefix("ws").filter(|rest| rest.starts_with("://") || rest.starts_with("s://"));
    let http = http.ok_or_else(|| usage(format!("{url}: --websocket must be ws://host:port/path")))?;
    let (origin, path) = split(&format!("http{http}"))?;
    let description = format!("{}{path}", origin.url().replacen("http", "ws", 1));
    let pair = |text: &String, by: &str, rule: &str| {
        let (name, value) = text.split_once(by).ok_or_else(|| usage(format!("{text:?}: {rule}")))?;
        Ok::<_, Error>((name.to_owned(), value.to_owned()))
    };
    let answers = args.answer.iter().map(|text| pair(text, "=", "--answer must be TEXT=REPLY"));
    let headers = args.publish_header.iter();
    let headers = headers.map(|text| pair(text, ":", "--publish-header must be NAME: VALUE"));
    let dialect = Dialect::Frames(Frames {
        path,
        hello: args.hello.clone(),
        ready: args.ready.clone(),
        answers: answers.collect::<Result<_, _>>()?,
    });
    let publish = match &args.publish_body {
        Some(body) => Some(publish(body, args.publish_url.as_deref(), headers.collect::<Result<_, _>>()?)?),
        None => None,
    };
    Ok((origin, dialect, publish, description))
}

fn mqtt(args: &args::Foreign) -> Dialect {
    let password = args.password.clone().map_or(Password::None, Password::Text);
    Dialect::Mqtt(Mqtt { inbox: args.inbox.clone(), password })
}

fn xmpp(args: &args::Foreign, domain: &str) -> Dialect {
    let password = args.password.clone().unwrap_or_else(|| DEVICE.to_owned());
    Dialect::Xmpp(Xmpp { domain: domain.to_owned(), password: Password::Text(password), makes_node: false })
}

fn publish(body: &str, url: Option<&str>, headers: Vec<(String, String)>) -> Result<Publish, Error> {
    if !body.contains(DATA) {
        return Err(usage("--publish-body must contain {data}".to_owned()));
    }
    let no_line_break = |text: &str| !text.contains(['\r', '\n']);
    if !headers.iter().all(|(name, value)| no_line_break(name) && no_line_break(value)) {
        return Err(usage("--publish-header must be a single line".to_owned()));
    }
    let Some(url) = url else { return Ok(Publish::Frame(body.to_owned())) };
    let (origin, path) = split(url)?;
    Ok(Publish::Post { origin, path, headers, body: body.to_owned() })
}

/// Splits a URL into origin and path.
fn split(url: &str) -> Result<(Origin, String), Error> {
    let host_at = url.find("://").map_or(0, |at| at + 3);
    let path_at = url[host_at..].find(['/', '?']).map_or(url.len(), |at| host_at + at);
    let path = match &url[path_at..] {
        path if path.starts_with('/') => path.to_owned(),
        query => format!("/{query}"),
    };
    if path.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(usage(format!("{url}: a URL must not contain spaces")));
    }
    Ok((Origin::parse(&url[..path_at])?, path))
}

fn usage(rule: String) -> Error {
    Error::Usage(rule)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        common: Common,
        #[command(flatten)]
        speech: args::Speech,
        #[command(flatten)]
        foreign: args::Foreign,
    }

    fn read(words: &[&str]) -> Result<Target, Error> {
        let cli = Cli::parse_from(std::iter::once(&"bench").chain(words));
        Target::foreign(&cli.foreign, &cli.common, &cli.speech)
    }

    #[test]
    fn server_is_configured_with_its_frames() {
        let foreign = read(&[
            "--websocket",
            "ws://127.0.0.1:8000/connect?as={device}",
            "--hello",
            r#"{"user":"{device}"}"#,
            "--hello",
            "go",
            "--ready",
            "welcome",
            "--answer",
            "2=3",
            "--publish-url",
            "http://127.0.0.1:8001/api?x",
            "--publish-header",
            "X-Key: k:1",
            "--publish-body",
            r#"{"m":"{data}"}"#,
        ])
        .unwrap();
        let Dialect::Frames(frames) = &foreign.dialect else { panic!("frames") };
        assert_eq!((foreign.origin.address.port(), frames.path("d-1").as_str()), (8000, "/connect?as=d-1"));
        assert_eq!(frames.hello("d-1").collect::<Vec<_>>(), [r#"{"user":"d-1"}"#, "go"]);
        assert!(frames.is_ready("so welcome!") && !frames.is_ready("wel"));
        assert_eq!((frames.answer("2"), frames.answer("22")), (Some("3"), None));
        let Kind::Foreign(Some(Publish::Post { origin, path, headers, body })) = foreign.kind else {
            panic!("POST")
        };
        assert_eq!((origin.address.port(), path.as_str()), (8001, "/api?x"));
        assert_eq!(headers, [("X-Key".to_owned(), " k:1".to_owned())]);
        assert_eq!(body, r#"{"m":"{data}"}"#);
    }

    #[test]
    fn address_is_sufficient() {
        let foreign = read(&["--websocket", "ws://127.0.0.1:8000"]).unwrap();
        assert!(matches!(foreign.kind, Kind::Foreign(None)));
        let Dialect::Frames(frames) = foreign.dialect else { panic!("frames") };
        assert_eq!((frames.path.as_str(), frames.ready), ("/", None));
        let frame = read(&["--websocket", "ws://127.0.0.1:8000", "--publish-body", "say {data}"]).unwrap();
        assert_eq!(frame.publish().unwrap(), Some(&Publish::Frame("say {data}".to_owned())));
    }

    #[test]
    fn mqtt_and_xmpp_need_no_frames() {
        let mqtt = read(&["--mqtt-server", "127.0.0.1:1883", "--inbox", "in/{device}"]).unwrap();
        assert_eq!(
            (mqtt.description.as_str(), mqtt.publish().unwrap()),
            ("mqtt://127.0.0.1:1883", Some(&Publish::Frame(DATA.to_owned())))
        );
        let anonymous = Mqtt { inbox: Some("in/{device}".to_owned()), password: Password::None };
        assert_eq!(mqtt.dialect, Dialect::Mqtt(anonymous));
        let xmpp = read(&["--xmpp-server", "127.0.0.1:5222", "--xmpp-domain", "a.example"]).unwrap();
        let Dialect::Xmpp(Xmpp { domain, password, makes_node: false }) = &xmpp.dialect else {
            panic!("XMPP")
        };
        assert_eq!((domain.as_str(), password), ("a.example", &Password::Text("{device}".to_owned())));
        assert!(xmpp.dialect.is_plain() && mqtt.dialect.is_plain());
        assert!(read(&["--mqtt-server", "127.0.0.1"]).is_err());
    }

    #[test]
    fn invalid_values_name_the_option() {
        let at = ["--websocket", "ws://127.0.0.1:8000"];
        for (words, option) in [
            (&["--websocket", "http://127.0.0.1:8000"][..], "--websocket"),
            (&[&at[..], &["--answer", "2"]].concat(), "--answer"),
            (&[&at[..], &["--publish-body", "text"]].concat(), "--publish-body"),
            (
                &[
                    &at[..],
                    &[
                        "--publish-body",
                        "{data}",
                        "--publish-url",
                        "http://127.0.0.1:1",
                        "--publish-header",
                        "x",
                    ],
                ]
                .concat(),
                "--publish-header",
            ),
        ] {
            let error = read(words).map(|_| ()).unwrap_err();
            assert!(matches!(&error, Error::Usage(text) if text.contains(option)), "{error}");
        }
    }
}
