//! A server that other people wrote, as the command line describes it: where its devices connect and how
//! they speak, how it is published to, and which process it is.

use crate::Error;
use crate::args::{self, Common};
use crate::dialect::Dialect;
use crate::http::Origin;
use crate::process::Process;

pub(crate) struct Foreign {
    pub(crate) origin: Origin,
    pub(crate) dialect: Dialect,
    pub(crate) process: Option<Process>,
    /// None: the scenario was not told how, and may not need to know.
    pub(crate) publish: Option<Publish>,
}

/// How something reaches all devices. `{data}` stands for the message in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Publish {
    Post {
        origin: Origin,
        path: String,
        headers: Vec<(String, String)>,
        body: String,
    },
    /// A text frame of one more device.
    Frame(String),
}

/// Stands for the message.
pub(crate) const DATA: &str = "{data}";

impl Foreign {
    pub(crate) fn new(args: &args::Foreign, common: &Common) -> Result<Self, Error> {
        let url = args.websocket.as_deref().unwrap_or_default();
        let http = url.strip_prefix("ws").filter(|rest| rest.starts_with("://") || rest.starts_with("s://"));
        let http = http.ok_or_else(|| usage(format!("{url}: --websocket is ws://host:port/path")))?;
        let (origin, path) = split(&format!("http{http}"))?;
        let pair = |text: &String, by: &str, rule: &str| {
            let (name, value) = text.split_once(by).ok_or_else(|| usage(format!("{text:?}: {rule}")))?;
            Ok::<_, Error>((name.to_owned(), value.to_owned()))
        };
        let answers = args.answer.iter().map(|text| pair(text, "=", "--answer is TEXT=REPLY"));
        let headers =
            args.publish_header.iter().map(|text| pair(text, ":", "--publish-header is NAME: VALUE"));
        let process = common.pid.map(Process::running).transpose()?;
        Ok(Self {
            origin,
            dialect: Dialect {
                path,
                hello: args.hello.clone(),
                ready: args.ready.clone(),
                answers: answers.collect::<Result<_, _>>()?,
            },
            process,
            publish: match &args.publish_body {
                Some(body) => {
                    Some(publish(body, args.publish_url.as_deref(), headers.collect::<Result<_, _>>()?)?)
                }
                None => None,
            },
        })
    }
}

fn publish(body: &str, url: Option<&str>, headers: Vec<(String, String)>) -> Result<Publish, Error> {
    if !body.contains(DATA) {
        return Err(usage("--publish-body has {data} where the message is to be".to_owned()));
    }
    let no_line_break = |text: &str| !text.contains(['\r', '\n']);
    if !headers.iter().all(|(name, value)| no_line_break(name) && no_line_break(value)) {
        return Err(usage("--publish-header is one line".to_owned()));
    }
    let Some(url) = url else { return Ok(Publish::Frame(body.to_owned())) };
    let (origin, path) = split(url)?;
    Ok(Publish::Post { origin, path, headers, body: body.to_owned() })
}

/// The origin of a URL and what is behind it.
fn split(url: &str) -> Result<(Origin, String), Error> {
    let host_at = url.find("://").map_or(0, |at| at + 3);
    let path_at = url[host_at..].find(['/', '?']).map_or(url.len(), |at| host_at + at);
    let path = match &url[path_at..] {
        path if path.starts_with('/') => path.to_owned(),
        query => format!("/{query}"),
    };
    if path.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(usage(format!("{url}: a URL has no spaces")));
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
        foreign: args::Foreign,
    }

    fn read(words: &[&str]) -> Result<Foreign, Error> {
        let cli = Cli::parse_from(std::iter::once(&"bench").chain(words));
        Foreign::new(&cli.foreign, &cli.common)
    }

    #[test]
    fn a_server_is_told_with_what_it_wants_to_hear() {
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
        assert_eq!(
            (foreign.origin.address.port(), foreign.dialect.path("d-1").as_str()),
            (8000, "/connect?as=d-1")
        );
        assert_eq!(foreign.dialect.hello("d-1").collect::<Vec<_>>(), [r#"{"user":"d-1"}"#, "go"]);
        assert!(foreign.dialect.is_ready("so welcome!") && !foreign.dialect.is_ready("wel"));
        assert_eq!((foreign.dialect.answer("2"), foreign.dialect.answer("22")), (Some("3"), None));
        let Some(Publish::Post { origin, path, headers, body }) = foreign.publish else { panic!("POST") };
        assert_eq!((origin.address.port(), path.as_str()), (8001, "/api?x"));
        assert_eq!(headers, [("X-Key".to_owned(), " k:1".to_owned())]);
        assert_eq!(body, r#"{"m":"{data}"}"#);
    }

    #[test]
    fn the_least_is_an_address() {
        let foreign = read(&["--websocket", "ws://127.0.0.1:8000"]).unwrap();
        assert_eq!(
            (foreign.dialect.path.as_str(), foreign.dialect.ready, foreign.publish),
            ("/", None, None)
        );
        let frame = read(&["--websocket", "ws://127.0.0.1:8000", "--publish-body", "say {data}"]).unwrap();
        assert_eq!(frame.publish, Some(Publish::Frame("say {data}".to_owned())));
    }

    #[test]
    fn what_cannot_work_names_the_option() {
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
