//! A Pyroscope server, as far as `POST /ingest` of a form goes: plain HTTP/1.1 on loopback, on a thread of its own.
//!
//! Strict: query, name with labels, credentials, multipart and the profile itself ([`pprof`]) are read by code of its own
//! and held against what the documentation of the real one and `profile.proto` say. It fails on command.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::sync::oneshot;

pub mod pprof;
mod request;

pub use pprof::Profile;
pub use request::Push;

/// Far more than a window compresses to.
const BODY_BYTES_MAX: usize = 32 << 20;

/// What it does with pushes that are right.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mood {
    #[default]
    Well,
    /// 503
    Overloaded,
    /// 422: this one and no other.
    Refusing,
    /// Connections end without an answer.
    Away,
}

/// What a push has to say of itself.
#[derive(Debug, Clone, Default)]
pub struct Expected {
    /// The header `Authorization`, or that there is none.
    pub authorization: Option<String>,
    /// The header `X-Scope-OrgID`, or that there is none.
    pub tenant: Option<String>,
}

struct State {
    expected: Expected,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    mood: Mood,
    pushes: Vec<Push>,
    turned_away: u64,
    violation: Option<String>,
}

/// Running until it is dropped.
pub struct Pyroscope {
    address: SocketAddr,
    state: Arc<State>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Pyroscope {
    pub fn start(expected: Expected) -> io::Result<Self> {
        let state = Arc::new(State { expected, told: Mutex::default() });
        let socket = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let serving = state.clone();
        let run = move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = stopped => {}
                    _ = serve(serving, socket) => {}
                }
            });
        };
        let thread = std::thread::Builder::new().name("fake-pyroscope".to_owned()).spawn(run)?;
        Ok(Self { address, state, stop: Some(stop), thread: Some(thread) })
    }

    /// `http://127.0.0.1:<port>`
    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn behave(&self, mood: Mood) {
        self.state.told.lock().mood = mood;
    }

    /// What it took, in order.
    pub fn pushes(&self) -> Vec<Push> {
        self.state.told.lock().pushes.clone()
    }

    /// How many right pushes it did not take because of its mood.
    pub fn turned_away(&self) -> u64 {
        self.state.told.lock().turned_away
    }

    /// The last rule that a push broke.
    pub fn violation(&self) -> Option<String> {
        self.state.told.lock().violation.clone()
    }
}

impl Drop for Pyroscope {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It panics only where it was told so already.
            let _ = thread.join();
        }
    }
}

async fn serve(state: Arc<State>, socket: std::net::TcpListener) -> io::Result<()> {
    let socket = tokio::net::TcpListener::from_std(socket)?;
    loop {
        let (stream, _) = socket.accept().await?;
        let state = state.clone();
        tokio::spawn(async move {
            let service = service_fn(|request| answer(state.clone(), request));
            let http = hyper::server::conn::http1::Builder::new();
            // A sender that leaves amid an answer is no concern of ours.
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, io::Error> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(io::Error::other)?.to_bytes();
    let read = request::read(&state.expected, &head, &body);
    let mut told = state.told.lock();
    let (status, text) = match (read, told.mood) {
        (Err(why), _) => {
            told.violation = Some(why.clone());
            (400, why)
        }
        (Ok(push), Mood::Well) => {
            told.pushes.push(push);
            (200, String::new())
        }
        (Ok(_), mood) => {
            told.turned_away += 1;
            match mood {
                Mood::Overloaded => (503, "too many profiles".to_owned()),
                Mood::Refusing => (422, "not this profile".to_owned()),
                Mood::Well | Mood::Away => return Err(io::ErrorKind::ConnectionReset.into()),
            }
        }
    };
    Response::builder().status(status).body(Full::new(text.into())).map_err(io::Error::other)
}
