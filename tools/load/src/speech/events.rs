//! Server-sent events: one request with an endless response, whose head completes the log-in. The client
//! cannot send anything afterwards, so the request contains the topics, and `stored` messages cannot be
//! acknowledged (`args` rejects them).

use super::native::effect;
use super::{Login, MESSAGE_BYTES_MAX, RESPONSE_BYTES_MAX, Turn, refusal};
use crate::connection::{Ended, Stage};

const END: &[u8] = b"\n\n";

#[derive(Debug, Default)]
pub(crate) struct Events {
    /// An incomplete head or event.
    held: Vec<u8>,
}

pub(super) fn request(login: Login<'_>) -> Vec<u8> {
    let Login { host, .. } = login;
    let query = login.topic.map(|topic| format!("?topics={topic}")).unwrap_or_default();
    format!(
        "GET /v1/events{query} HTTP/1.1\r\nHost: {host}\r\nAccept: text/event-stream\r\n\
         Authorization: Bearer {}\r\n\r\n",
        login.token()
    )
    .into()
}

impl Events {
    pub(super) fn handle_bytes(&mut self, bytes: &[u8], turn: &mut Turn<'_>) -> Result<(), Ended> {
        if *turn.stage == Stage::Opening {
            self.held.extend_from_slice(bytes);
            let Some(head_len) = opened(&self.held)? else { return Ok(()) };
            *turn.stage = Stage::Ready;
            let rest = self.held.split_off(head_len);
            self.held = Vec::new();
            return self.handle_events(&rest, turn);
        }
        if self.held.is_empty() {
            return self.handle_events(bytes, turn);
        }
        let mut joined = std::mem::take(&mut self.held);
        joined.extend_from_slice(bytes);
        self.handle_events(&joined, turn)
    }

    fn handle_events(&mut self, mut rest: &[u8], turn: &mut Turn<'_>) -> Result<(), Ended> {
        while let Some(at) = memchr::memmem::find(rest, END) {
            handle_event(&rest[..at], turn)?;
            rest = &rest[at + END.len()..];
        }
        if rest.len() > MESSAGE_BYTES_MAX {
            return Err(Ended::permanent("an event is too long"));
        }
        self.held.extend_from_slice(rest);
        Ok(())
    }
}

fn handle_event(event: &[u8], turn: &mut Turn<'_>) -> Result<(), Ended> {
    if event.starts_with(b"event: msg\n") {
        turn.message(turn.stamp.find(event), event.len());
        return Ok(());
    }
    // Comments keep the connection alive, and fields without data are ignored.
    let Some(at) = memchr::memmem::find(event, b"\ndata: ") else { return Ok(()) };
    let text = String::from_utf8_lossy(&event[at + 7..]);
    effect(&text, *turn.stage).map(drop)
}

/// The length of the head before the stream; `None` until it is complete.
fn opened(bytes: &[u8]) -> Result<Option<usize>, Ended> {
    let Some(head_len) = memchr::memmem::find(bytes, b"\r\n\r\n").map(|at| at + 4) else {
        return match bytes.len() > RESPONSE_BYTES_MAX {
            true => Err(Ended::permanent("the head of the response is too long")),
            false => Ok(None),
        };
    };
    let status = bytes.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    match status {
        Some(200) if bytes.starts_with(b"HTTP/1.1 ") => Ok(Some(head_len)),
        Some(status) if bytes.starts_with(b"HTTP/1.1 ") => {
            refusal(bytes, status, head_len).map_or(Ok(None), Err)
        }
        Some(_) | None => Err(Ended::permanent("the response is not HTTP")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_is_a_stream_or_a_reason() {
        let stream = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nretry: 1\n\n";
        assert!(matches!(opened(stream), Ok(Some(len)) if stream[len..].starts_with(b"retry")));
        assert!(matches!(opened(&stream[..20]), Ok(None)));
        let body = r#"{"code":"busy"}"#;
        let busy =
            format!("HTTP/1.1 503 No\r\nRetry-After: 2\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        assert!(matches!(opened(&busy.as_bytes()[..busy.len() - 1]), Ok(None)));
        let Err(ended) = opened(busy.as_bytes()) else { panic!("refused") };
        assert_eq!(
            (ended.reason.as_str(), ended.retry, ended.after_ms),
            ("HTTP 503 busy", true, Some(2_000))
        );
        assert!(opened(b"SSH-2.0-x\r\n\r\n").is_err());
    }
}
