//! The baseline: a minimal server that writes the same frames to the same kind of sockets. A bare epoll loop
//! accepts connections, answers upgrades, and writes each published message with one `write` per socket. It
//! checks no tokens and stores nothing; the difference to Noroshi is the cost of the service, and all figures
//! are shown as ratios.
//!
//! It understands only the requests of this load generator. A body whose `to` names a topic is written to
//! every open WebSocket; one that names users to `--deliveries` random sockets. `GET /connections` returns
//! the number of open WebSockets. A socket that does not accept a whole frame is closed, since no client of
//! this scenario reads slowly.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;

use memchr::memmem;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use noroshi_protocol::ws::{Opcode, push_frame};
use rustix::process::Signal;

use crate::Error;
use crate::payload::Draw;
use crate::process::Process;

const LISTENER: Token = Token(usize::MAX - 1);
const EVENTS: usize = 1_024;
const BACKLOG: i32 = 8_192;
const READ_BYTES: usize = 64 << 10;
const REQUEST_BYTES_MAX: usize = 16 << 20;
/// The response for the key of RFC 6455 §1.3, which the devices use.
const UPGRADED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
const READY: &[u8] = br#"{"t":"ready","device":"floor","session":"0000000000000000","ping_s":25}"#;
const PONG: &[u8] = br#"{"t":"pong"}"#;
/// Noroshi's fields before and after `data`.
const MESSAGE: &[u8] = br#"{"t":"msg","id":"019aa5b0-0000-7000-8000-000000000000","#;
const MESSAGE_PLACE: &[u8] = br#""topic":"bench-topic","epoch":"0123abcd","offset":1000,"#;
const SENT_AT: &[u8] = br#","sent_at":"2026-01-01T00:00:00.000Z"}"#;

/// Serves until the process ends.
pub(crate) fn run(listen: SocketAddr, deliveries: usize) -> Result<(), Error> {
    Process::end_with_parent(Signal::KILL)?;
    let mut floor = Floor::new(listen, deliveries).map_err(Error::system("the floor's socket"))?;
    floor.serve().map_err(Error::system("epoll"))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The request is incomplete.
    Request,
    WebSocket,
}

struct Floor {
    poll: Poll,
    listener: TcpListener,
    /// By token.
    sockets: Vec<Option<(TcpStream, Kind)>>,
    free: Vec<usize>,
    open_count: usize,
    /// Requests that need more than one read.
    partial: HashMap<usize, Vec<u8>>,
    /// The open WebSockets, unless `stale`.
    draw: Draw,
    stale: bool,
    deliveries: usize,
    frame: Vec<u8>,
}

impl Floor {
    fn new(listen: SocketAddr, deliveries: usize) -> io::Result<Self> {
        use socket2::{Domain, Protocol, Socket, Type};
        let socket = Socket::new(Domain::for_address(listen), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&listen.into())?;
        socket.listen(BACKLOG)?;
        let mut listener = TcpListener::from_std(socket.into());
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Self {
            poll,
            listener,
            sockets: Vec::new(),
            free: Vec::new(),
            open_count: 0,
            partial: HashMap::new(),
            draw: Draw::new(std::iter::empty(), 1),
            stale: false,
            deliveries,
            frame: Vec::new(),
        })
    }

    fn serve(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS);
        let mut scratch = vec![0; READ_BYTES];
        loop {
            match self.poll.poll(&mut events, None) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                Ok(()) | Err(_) => {}
            }
            for event in &events {
                match event.token() {
                    LISTENER => self.accept()?,
                    Token(at) => self.read(at, event.is_read_closed(), &mut scratch),
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let mut stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error)
                    if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) =>
                {
                    continue;
                }
                Err(error) => return Err(error),
            };
            stream.set_nodelay(true)?;
            let at = self.free.pop().unwrap_or(self.sockets.len());
            self.poll.registry().register(&mut stream, Token(at), Interest::READABLE)?;
            let socket = Some((stream, Kind::Request));
            match self.sockets.get_mut(at) {
                Some(place) => *place = socket,
                None => self.sockets.push(socket),
            }
        }
    }

    fn read(&mut self, at: usize, to_end: bool, scratch: &mut [u8]) {
        loop {
            let Some(Some((stream, kind))) = self.sockets.get_mut(at) else { return };
            let kind = *kind;
            match stream.read(scratch) {
                Ok(0) => return self.close(at),
                Ok(count) => {
                    match kind {
                        Kind::Request => self.handle_request(at, &scratch[..count]),
                        Kind::WebSocket => self.handle_frames(at, &scratch[..count]),
                    }
                    if count < scratch.len() && !to_end {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return self.close(at),
            }
        }
    }

    fn close(&mut self, at: usize) {
        let Some((_, kind)) = self.sockets.get_mut(at).and_then(Option::take) else { return };
        self.partial.remove(&at);
        self.free.push(at);
        if kind == Kind::WebSocket {
            self.open_count -= 1;
            self.stale = true;
        }
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        let Some(Some((stream, _))) = self.sockets.get_mut(at) else { return };
        if stream.write(bytes).ok() != Some(bytes.len()) {
            self.close(at);
        }
    }

    /// Handles a device's subscription with the ping after it.
    fn handle_frames(&mut self, at: usize, bytes: &[u8]) {
        match bytes[0] & 0x0F {
            0x1 => {
                let mut pong = Vec::new();
                push_frame(&mut pong, Opcode::Text, PONG);
                self.write(at, &pong);
            }
            0x8 => self.close(at),
            _ => {}
        }
    }

    fn handle_request(&mut self, at: usize, bytes: &[u8]) {
        let mut request = self.partial.remove(&at).unwrap_or_default();
        if request.is_empty() && is_complete(bytes) {
            return self.answer(at, bytes);
        }
        request.extend_from_slice(bytes);
        match is_complete(&request) {
            true => self.answer(at, &request),
            false if request.len() > REQUEST_BYTES_MAX => self.close(at),
            false => drop(self.partial.insert(at, request)),
        }
    }

    fn answer(&mut self, at: usize, request: &[u8]) {
        if request.starts_with(b"POST ") {
            self.publish(request);
            return self.write(at, &response(202, "{\"id\":\"floor\"}"));
        }
        if request.starts_with(b"GET /connections ") {
            let count = self.open_count.to_string();
            return self.write(at, &response(200, &count));
        }
        let mut answer = UPGRADED.to_vec();
        push_frame(&mut answer, Opcode::Text, READY);
        if let Some(Some((_, kind))) = self.sockets.get_mut(at) {
            *kind = Kind::WebSocket;
            self.open_count += 1;
            self.stale = true;
        }
        self.write(at, &answer);
    }

    fn publish(&mut self, request: &[u8]) {
        let body = memmem::find(request, b"\r\n\r\n").map_or(&[][..], |head_len| &request[head_len + 4..]);
        let to_topic = body.starts_with(br#"{"to":{"topic":"#);
        let mut frame = std::mem::take(&mut self.frame);
        frame.clear();
        for line in body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            push_message(&mut frame, line, to_topic);
        }
        if std::mem::take(&mut self.stale) {
            let is_open = |(at, socket): (usize, &Option<_>)| {
                matches!(socket, Some((_, Kind::WebSocket))).then_some(at as u32)
            };
            self.draw = Draw::new(self.sockets.iter().enumerate().filter_map(is_open), 1);
        }
        let count = if to_topic { self.open_count } else { self.deliveries };
        let mut draw = std::mem::replace(&mut self.draw, Draw::new(std::iter::empty(), 1));
        let drawn = if to_topic { draw.all() } else { draw.draw(count) };
        for at in drawn {
            self.write(*at as usize, &frame);
        }
        self.draw = draw;
        self.frame = frame;
    }
}

/// Whether a request is complete, including its body.
fn is_complete(bytes: &[u8]) -> bool {
    let Some(head_len) = memmem::find(bytes, b"\r\n\r\n") else { return false };
    let length = memmem::find(&bytes[..head_len], b"Content-Length: ").map_or(0, |at| {
        let digits = bytes[at + 16..head_len].iter().take_while(|byte| byte.is_ascii_digit());
        digits.fold(0_usize, |sum, digit| sum.saturating_mul(10).saturating_add(usize::from(digit - b'0')))
    });
    bytes.len() >= (head_len + 4).saturating_add(length)
}

/// The frame that Noroshi writes for a request, of approximately the same length.
fn push_message(frame: &mut Vec<u8>, body: &[u8], to_topic: bool) {
    let data = memmem::find(body, br#""data":"#).map_or(&[][..], |at| &body[at..body.len() - 1]);
    let place = if to_topic { MESSAGE_PLACE } else { b"" };
    let message = [MESSAGE, place, data, SENT_AT].concat();
    push_frame(frame, Opcode::Text, &message);
}

fn response(status: u16, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_is_complete_with_its_body() {
        let request = b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc";
        for len in 0..request.len() {
            assert!(!is_complete(&request[..len]), "{len}");
        }
        assert!(is_complete(request));
        assert!(is_complete(b"GET / HTTP/1.1\r\n\r\n"));
    }

    #[test]
    fn message_carries_the_data_of_its_request() {
        let mut frame = Vec::new();
        push_message(
            &mut frame,
            br#"{"to":{"topic":"bench-topic"},"when":"connected","data":{"ns":7,"pad":"x"}}"#,
            true,
        );
        let from = frame.iter().position(|byte| *byte == b'{').expect("the message is an object");
        let text = std::str::from_utf8(&frame[from..]).expect("JSON is text");
        assert!(text.contains(r#""topic":"bench-topic","epoch":"#), "{text}");
        assert!(text.contains(r#","data":{"ns":7,"pad":"x"},"sent_at":"#), "{text}");
        assert!(noroshi_protocol::native::parse_server_frame(text).is_ok(), "{text}");
    }
}
