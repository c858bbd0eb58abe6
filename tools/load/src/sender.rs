//! A provider connection in the event loop: one request at a time over keep-alive HTTP/1.1, reopened when the
//! server closes it. The number of connections limits the requests in flight.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;

use mio::{Registry, Token};

use crate::clock;
use crate::http::Response;
use crate::socket::{Route, Socket};
use crate::tls::Connector;

const READ_BYTES: usize = 16 << 10;

/// A request that waits for its response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pending {
    /// When it was due: a late start counts as latency (no coordinated omission).
    pub(crate) due_ns: u64,
    /// The number of its connected targets.
    pub(crate) connected: u64,
}

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) pending: Pending,
    pub(crate) at_ns: u64,
    /// The cause if it was rejected.
    pub(crate) result: Result<(), String>,
}

pub(crate) struct Sender {
    address: SocketAddr,
    connector: Option<Connector>,
    token: Token,
    stream: Option<Socket>,
    pending: Option<Pending>,
    /// `request[written..]` is still to be sent.
    request: Vec<u8>,
    written: usize,
    /// An incomplete response.
    received: Vec<u8>,
}

impl Sender {
    pub(crate) fn new(address: SocketAddr, connector: Option<Connector>, token: Token) -> Self {
        Self {
            address,
            connector,
            token,
            stream: None,
            pending: None,
            request: Vec::new(),
            written: 0,
            received: Vec::new(),
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_none()
    }

    /// Sends the request that `write` appends. The response comes from [`Sender::handle_ready`], unless the
    /// server is unreachable.
    pub(crate) fn send(
        &mut self,
        registry: &Registry,
        pending: Pending,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Option<Answer> {
        self.request.clear();
        self.written = 0;
        self.received.clear();
        write(&mut self.request);
        self.pending = Some(pending);
        let opened = match self.stream {
            Some(_) => Ok(()),
            None => self.open(registry),
        };
        match opened.and_then(|()| self.flush()) {
            Ok(()) => None,
            Err(error) => self.fail(&error),
        }
    }

    fn open(&mut self, registry: &Registry) -> io::Result<()> {
        let tls = self.connector.as_ref();
        let mut stream = Socket::open(Route { to: self.address, source: None, narrow: false, tls })?;
        stream.set_nodelay()?;
        stream.register(registry, self.token)?;
        self.stream = Some(stream);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let Some(stream) = &mut self.stream else { return Ok(()) };
        while self.written < self.request.len() {
            match stream.write(&self.request[self.written..]) {
                Ok(len) => self.written += len,
                // Also while connecting; a writable event follows.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        stream.flush().map(drop)
    }

    /// Handles a socket event, which completes at most one request.
    pub(crate) fn handle_ready(&mut self) -> Option<Answer> {
        if let Err(error) = self.flush() {
            return self.fail(&error);
        }
        let mut chunk = [0; READ_BYTES];
        loop {
            let Some(stream) = &mut self.stream else { return None };
            match stream.read(&mut chunk) {
                Ok(0) => return self.ended(),
                Ok(len) => self.received.extend_from_slice(&chunk[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return self.answered(false),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return self.fail(&error),
            }
        }
    }

    fn ended(&mut self) -> Option<Answer> {
        self.stream = None;
        self.answered(true).or_else(|| self.fail(&ErrorKind::UnexpectedEof.into()))
    }

    fn answered(&mut self, ended: bool) -> Option<Answer> {
        let response = match Response::parse(&self.received, ended) {
            Ok(response) => response?,
            Err(what) => return self.fail(&io::Error::other(what)),
        };
        self.received.clear();
        if response.close {
            self.stream = None;
        }
        let pending = self.pending.take()?;
        let result = match response.status {
            // 304: the client has the current answer.
            200..=299 | 304 => Ok(()),
            _ => Err(response.problem_code()),
        };
        Some(Answer { pending, at_ns: clock::now_ns(), result })
    }

    fn fail(&mut self, error: &io::Error) -> Option<Answer> {
        self.stream = None;
        self.received.clear();
        let pending = self.pending.take()?;
        Some(Answer { pending, at_ns: clock::now_ns(), result: Err(error.to_string()) })
    }
}
