//! Client of server-sent events (HTML Living Standard §9.2.6), for streams of any server.

use std::time::Duration;

use http::header::ACCEPT;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use crate::client::{Client, escape, refusal};
use crate::failure::Failure;

const OPEN_TIMEOUT: Duration = Duration::from_secs(15);
const EVENT_BYTES_MAX: usize = 16 << 20;

pub(crate) struct Events {
    body: Incoming,
    parser: Parser,
    /// Without any bytes for this long, not even a comment, the stream is dead.
    pub(super) quiet_max: Duration,
}

impl Events {
    pub(crate) async fn open(
        client: &Client,
        topics: &[String],
        last_event_id: Option<&str>,
    ) -> Result<Self, Failure> {
        let topics: Vec<String> = topics.iter().map(|topic| escape(topic)).collect();
        let query = if topics.is_empty() { String::new() } else { format!("?topics={}", topics.join(",")) };
        let mut request = client.request(Method::GET, &format!("/v1/events{query}"))?;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(Ok(id)) = last_event_id.map(HeaderValue::try_from) {
            headers.insert(HeaderName::from_static("last-event-id"), id);
        }
        let open = async {
            let response = client.send(request).await?;
            match response.status() {
                StatusCode::OK => Ok(response.into_body()),
                _ => Err(refusal(response).await),
            }
        };
        let body = tokio::time::timeout(OPEN_TIMEOUT, open)
            .await
            .map_err(|_| Failure::failed("the event stream did not start in time"))??;
        Ok(Self { body, parser: Parser::default(), quiet_max: super::QUIET_MAX })
    }

    /// The data of the next event. None when the stream has ended. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Result<Option<String>, Failure> {
        loop {
            if let Some(data) = self.parser.next() {
                return Ok(Some(data));
            }
            match tokio::time::timeout(self.quiet_max, self.body.frame()).await {
                Err(_) | Ok(None | Some(Err(_))) => return Ok(None),
                Ok(Some(Ok(frame))) => {
                    if let Some(bytes) = frame.data_ref() {
                        self.parser.feed(bytes)?;
                    }
                }
            }
        }
    }
}

/// Parses the data of events. Ignores the other fields, since the JSON contains names and ids as well.
#[derive(Default)]
struct Parser {
    /// An incomplete line.
    pending: Vec<u8>,
    /// Data lines of the current event.
    data: Option<String>,
    /// `pending[..scanned]` contains no line end.
    scanned: usize,
}

impl Parser {
    fn feed(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let held = self.pending.len() + self.data.as_ref().map_or(0, String::len);
        if held + bytes.len() > EVENT_BYTES_MAX {
            return Err(Failure::failed("the server sent an event larger than 16 MiB"));
        }
        self.pending.extend_from_slice(bytes);
        Ok(())
    }

    fn next(&mut self) -> Option<String> {
        while let Some(line) = self.line() {
            match line.split_once(':') {
                // A blank line ends the event.
                None if line.is_empty() => {
                    if let Some(data) = self.data.take() {
                        return Some(data);
                    }
                }
                Some(("data", value)) => {
                    let value = value.strip_prefix(' ').unwrap_or(value);
                    match &mut self.data {
                        Some(data) => {
                            data.push('\n');
                            data.push_str(value);
                        }
                        None => self.data = Some(value.to_owned()),
                    }
                }
                _ => {}
            }
        }
        None
    }

    fn line(&mut self) -> Option<String> {
        let found = self.pending[self.scanned..].iter().position(|byte| *byte == b'\n');
        let Some(end) = found.map(|at| at + self.scanned) else {
            self.scanned = self.pending.len();
            return None;
        };
        self.scanned = 0;
        let line: Vec<u8> = self.pending.drain(..=end).collect();
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        Some(String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_parsed_from_any_chunks() {
        let stream = "retry: 1\n\n: hello\nevent: msg\nid: 7\ndata: {\"a\":1}\n\ndata: x\r\ndata: y\r\n\r\n";
        for size in 1..stream.len() {
            let mut parser = Parser::default();
            let mut events = Vec::new();
            for chunk in stream.as_bytes().chunks(size) {
                parser.feed(chunk).expect("small");
                events.extend(std::iter::from_fn(|| parser.next()));
            }
            assert_eq!(events, ["{\"a\":1}", "x\ny"], "in pieces of {size}");
        }
    }
}
