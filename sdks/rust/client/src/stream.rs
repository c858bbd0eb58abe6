//! A stream of server-sent events. What the device sends goes through the HTTP API.

use std::sync::Arc;

use bytes::Bytes;
use http::StatusCode;
use http::header::{ACCEPT, AUTHORIZATION, CACHE_CONTROL};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use serde::Deserialize;

use crate::error::BoxError;
use crate::http::{bearer, retry_after_of};
use crate::protocol::{Dial, Ended};
use crate::shared::{FRAME_MAX, Shared};
use crate::throttle::Throttle;

/// Of a problem document.
const PROBLEM_MAX: usize = 1 << 20;

/// Reports everything that happens to the stream to the machine.
pub(crate) async fn run(shared: Arc<Shared>, dial: Dial) {
    let end = match open(&shared, &dial).await {
        Ok(response) if response.status() == StatusCode::OK => {
            shared.opened(dial.attempt);
            read(&shared, dial.attempt, response.into_body()).await;
            Ended::default()
        }
        Ok(response) => refusal(&shared, response).await,
        Err(_) => Ended::default(),
    };
    shared.input(|machine, now| machine.ended(now, dial.attempt, end));
}

async fn open(shared: &Shared, dial: &Dial) -> Result<http::Response<Incoming>, BoxError> {
    let topics = dial.topics.join(",");
    let mut query = Vec::new();
    if !topics.is_empty() {
        query.push(("topics", topics.as_str()));
    }
    query.extend(shared.app.as_deref().map(|app| ("app", app)));
    let mut request = http::Request::get(shared.base.http("/v1/events", &query))
        .header(ACCEPT, "text/event-stream")
        .header(CACHE_CONTROL, "no-store")
        .header(AUTHORIZATION, bearer(dial.token.as_deref().unwrap_or_default())?);
    if let Some(id) = &dial.last_event_id {
        request = request.header("last-event-id", id);
    }
    shared.http.send(request.body(Full::default())?).await
}

async fn refusal(shared: &Shared, response: http::Response<Incoming>) -> Ended {
    #[derive(Deserialize)]
    struct Problem {
        code: String,
    }
    let (head, body) = response.into_parts();
    let retry_after = retry_after_of(&head.headers, shared.clock.now().unix);
    let body =
        Limited::new(body, PROBLEM_MAX).collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let problem = serde_json::from_slice::<Problem>(&body).ok().map(|problem| problem.code);
    Ended { code: None, status: Some(head.status.as_u16()), problem, retry_after }
}

async fn read(shared: &Shared, attempt: u64, mut body: Incoming) {
    let (mut parser, mut throttle) = (Parser::default(), Throttle::default());
    while let Some(Ok(frame)) = body.frame().await {
        let Ok(bytes) = frame.into_data() else { continue };
        let Ok(()) = parser.feed(&bytes) else { return };
        while let Some(line) = parser.next() {
            match line {
                Line::Event(data) => shared.input(|machine, now| machine.frame(now, attempt, Some(&data))),
                Line::Other => shared.input(|machine, now| machine.heard(now, attempt)),
            }
            throttle.wait(shared).await;
        }
    }
}

#[derive(Debug, PartialEq)]
enum Line {
    /// The end of an event with data.
    Event(String),
    /// A comment, or a field without a meaning here: the data has the name and the id too.
    Other,
}

#[derive(Debug)]
struct TooLarge;

/// HTML Living Standard §9.2.6, for the line ends of the service.
#[derive(Default)]
struct Parser {
    /// Bytes without a line end, or not read yet.
    pending: Vec<u8>,
    /// `pending[..start]` has been read; `pending[start..scanned]` has no line end.
    start: usize,
    scanned: usize,
    data: Option<String>,
}

impl Parser {
    fn feed(&mut self, bytes: &Bytes) -> Result<(), TooLarge> {
        self.pending.drain(..self.start);
        self.scanned -= self.start;
        self.start = 0;
        let held = self.pending.len() + self.data.as_ref().map_or(0, String::len);
        if held + bytes.len() > FRAME_MAX {
            return Err(TooLarge);
        }
        self.pending.extend_from_slice(bytes);
        Ok(())
    }

    fn next(&mut self) -> Option<Line> {
        loop {
            let Some(length) = self.pending[self.scanned..].iter().position(|byte| *byte == b'\n') else {
                self.scanned = self.pending.len();
                return None;
            };
            let end = self.scanned + length;
            let line = &self.pending[self.start..end];
            let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line));
            (self.start, self.scanned) = (end + 1, end + 1);
            if let Some(value) = line.strip_prefix("data:") {
                let value = value.strip_prefix(' ').unwrap_or(value);
                match &mut self.data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(value);
                    }
                    None => self.data = Some(value.to_owned()),
                }
            } else if line.is_empty() {
                if let Some(data) = self.data.take() {
                    return Some(Line::Event(data));
                }
            } else {
                return Some(Line::Other);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_parsed_from_any_chunks() {
        let text = "retry: 1\n\n: hello\nevent: msg\nid: 7\ndata: {\"a\":1}\n\ndata: x\r\ndata:y\r\n\r\n";
        for size in 1..=text.len() {
            let mut parser = Parser::default();
            let (mut events, mut others) = (Vec::new(), 0);
            for chunk in text.as_bytes().chunks(size) {
                parser.feed(&Bytes::copy_from_slice(chunk)).expect("small");
                while let Some(line) = parser.next() {
                    match line {
                        Line::Event(data) => events.push(data),
                        Line::Other => others += 1,
                    }
                }
            }
            assert_eq!(events, ["{\"a\":1}", "x\ny"], "in pieces of {size}");
            assert_eq!(others, 4);
        }
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut parser = Parser::default();
        let bytes = Bytes::from(vec![b'x'; FRAME_MAX / 2]);
        assert!(parser.feed(&bytes).is_ok());
        assert!(parser.next().is_none());
        assert!(parser.feed(&bytes).is_ok());
        assert!(parser.feed(&bytes).is_err());
    }
}
