//! A Pyroscope server, limited to `POST /ingest` with a form: HTTP/1.1 without TLS on loopback, on its own
//! thread.
//!
//! Strict: query, name with labels, credentials, multipart and the profile itself ([`pprof`]) are parsed by
//! separate code and checked against the documentation of the real server and `profile.proto`. It fails on
//! command.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use parking_lot::Mutex;

use crate::background::{Background, bind, serve};

pub mod pprof;
mod request;

pub use pprof::Profile;
pub use request::Push;

/// Far more than the compressed size of a window.
const BODY_BYTES_MAX: usize = 32 << 20;

/// What it does with valid pushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mood {
    #[default]
    Well,
    /// 503
    Overloaded,
    /// 422: only this push is rejected.
    Refusing,
    /// Connections are closed without an answer.
    Away,
}

/// Expected headers of a push.
#[derive(Debug, Clone, Default)]
pub struct Expected {
    /// The header `Authorization`; `None`: it must be absent.
    pub authorization: Option<String>,
    /// The header `X-Scope-OrgID`; `None`: it must be absent.
    pub tenant: Option<String>,
}

struct State {
    expected: Expected,
    changing: Mutex<Changing>,
}

#[derive(Default)]
struct Changing {
    mood: Mood,
    pushes: Vec<Push>,
    turned_away: u64,
    violation: Option<String>,
}

/// Runs until dropped.
pub struct Pyroscope {
    address: SocketAddr,
    state: Arc<State>,
    _background: Background,
}

impl Pyroscope {
    pub fn start(expected: Expected) -> io::Result<Self> {
        let state = Arc::new(State { expected, changing: Mutex::default() });
        let (listener, address) = bind(0)?;
        let serving = state.clone();
        let background = Background::start("fake-pyroscope", || {
            let listener = tokio::net::TcpListener::from_std(listener)?;
            Ok(serve(listener, move |request| answer(serving.clone(), request)))
        })?;
        Ok(Self { address, state, _background: background })
    }

    /// `http://127.0.0.1:<port>`
    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn behave(&self, mood: Mood) {
        self.state.changing.lock().mood = mood;
    }

    /// The accepted pushes, in order.
    pub fn pushes(&self) -> Vec<Push> {
        self.state.changing.lock().pushes.clone()
    }

    /// Number of valid pushes rejected because of the mood.
    pub fn turned_away(&self) -> u64 {
        self.state.changing.lock().turned_away
    }

    /// The last violation.
    pub fn violation(&self) -> Option<String> {
        self.state.changing.lock().violation.clone()
    }
}

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, io::Error> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, BODY_BYTES_MAX).collect().await.map_err(io::Error::other)?.to_bytes();
    let read = request::read(&state.expected, &head, &body);
    let mut changing = state.changing.lock();
    let (status, text) = match (read, changing.mood) {
        (Err(why), _) => {
            changing.violation = Some(why.clone());
            (400, why)
        }
        (Ok(push), Mood::Well) => {
            changing.pushes.push(push);
            (200, String::new())
        }
        (Ok(_), mood) => {
            changing.turned_away += 1;
            match mood {
                Mood::Overloaded => (503, "too many profiles".to_owned()),
                Mood::Refusing => (422, "profile rejected".to_owned()),
                Mood::Well | Mood::Away => return Err(io::ErrorKind::ConnectionReset.into()),
            }
        }
    };
    Response::builder().status(status).body(Full::new(text.into())).map_err(io::Error::other)
}
