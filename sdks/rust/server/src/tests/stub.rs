//! A server that answers as a test says.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::client::{Builder, Client};

#[derive(Debug, Clone)]
pub(super) enum Answer {
    /// With headers, each with its line end, and a body.
    Status(u16, &'static str, String),
    /// Ends the connection instead.
    Break,
    /// Never answers.
    Hang,
}

impl Answer {
    pub(super) fn ok(body: impl Into<String>) -> Self {
        Self::Status(200, "", body.into())
    }

    pub(super) fn problem(status: u16, headers: &'static str) -> Self {
        let body = format!(
            r#"{{"type": "/docs#x", "title": "Title", "status": {status}, "code": "overloaded", "detail": "Detail", "field": "to"}}"#
        );
        Self::Status(status, headers, body)
    }
}

#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    /// The first line.
    pub(super) line: String,
    /// Names are lower case.
    headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl Seen {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

#[derive(Clone)]
pub(super) struct Stub {
    url: String,
    answers: Arc<Mutex<VecDeque<Answer>>>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Stub {
    /// The last answer is repeated.
    pub(super) async fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let stub =
            Self { url, answers: Arc::new(Mutex::new(answers.into_iter().collect())), seen: Arc::default() };
        let server = stub.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                tokio::spawn(server.clone().serve(connection));
            }
        });
        stub
    }

    pub(super) fn builder(&self) -> Builder {
        Client::builder(&self.url, "key")
    }

    pub(super) fn client(&self) -> Client {
        self.builder().build().expect("a client")
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("no panic").clone()
    }

    async fn serve(self, connection: TcpStream) -> Option<()> {
        let mut connection = BufReader::new(connection);
        loop {
            let mut seen = Seen::default();
            connection.read_line(&mut seen.line).await.ok().filter(|length| *length > 0)?;
            seen.line = seen.line.trim().to_owned();
            loop {
                let mut line = String::new();
                connection.read_line(&mut line).await.ok()?;
                let Some((name, value)) = line.trim().split_once(':') else { break };
                seen.headers.push((name.to_lowercase(), value.trim().to_owned()));
            }
            let length = seen.header("content-length").map_or(0, |text| text.parse().expect("a length"));
            let mut body = vec![0; length];
            connection.read_exact(&mut body).await.ok()?;
            seen.body = String::from_utf8(body).expect("UTF-8");
            let answer = {
                self.seen.lock().expect("no panic").push(seen);
                let mut answers = self.answers.lock().expect("no panic");
                if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() }
            };
            match answer.expect("an answer") {
                Answer::Break => return None,
                Answer::Hang => std::future::pending().await,
                Answer::Status(status, headers, body) => {
                    let head = format!(
                        "HTTP/1.1 {status} x\r\nx-request-id: r1\r\n{headers}content-length: {}\r\n\r\n",
                        body.len()
                    );
                    connection.write_all((head + &body).as_bytes()).await.ok()?;
                }
            }
        }
    }
}
