//! The noisy app: created through the admin address, with retained messages, devices whose push service never
//! answers, and the URL of a JWK set that never answers.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::Bench;
use crate::args::Tenants;
use crate::http::{Client, Origin, Request};
use crate::jwt::Signer;
use crate::{Error, clock};

pub(super) const APP: &str = "noisy";
const SECRET: &str = "a secret of the noisy app, long enough";
/// Lines per request.
const LINES: usize = 1_000;
/// Devices whose push service does not answer.
const PUSHED: u32 = 64;
/// For VAPID (RFC 8292); any scalar works, since the signature is never checked.
const VAPID_KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE";
/// A point on P-256, and 16 bytes (RFC 8291).
const P256DH: &str =
    "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";
/// Open connections to the silent server; later ones stay in the kernel's queue.
const SILENT_MAX: usize = 1_024;

#[derive(Clone)]
pub(super) struct Tenant {
    pub(super) origin: Origin,
    pub(super) key: String,
    pub(super) signer: Signer,
    /// Keeps its port open.
    _silent: Arc<Silent>,
}

impl Tenant {
    pub(super) fn make(args: &Tenants, bench: &Bench<'_>) -> Result<Self, Error> {
        let (Some(admin), Some(token)) = (&bench.target.admin, bench.target.operator_token()) else {
            return Err(Error::Usage("the started server has no admin address".to_owned()));
        };
        let mut operator = Client::new(admin.clone())?;
        let mut operate = |method, path: &str, body: Value| ask(&mut operator, &token, (method, path), &body);
        operate("POST", "/v1/apps", json!({"name": APP, "jwt_secret": SECRET}))?;
        let scopes = ["publish", "devices", "read"];
        let made = operate("POST", &of("keys"), json!({"name": "bench", "scopes": scopes}))?;
        let key = made["key"].as_str().unwrap_or_default().to_owned();
        let silent = Arc::new(Silent::listen()?);
        let jwks_url = format!("http://{}/jwks", silent.address);
        // The response follows when the fetch has failed.
        operate("PATCH", &format!("/v1/apps/{APP}"), json!({"jwks_url": jwks_url}))?;
        let vapid = json!({"service": "webpush", "name": "bench", "subject": "mailto:bench@localhost", "private_key": VAPID_KEY});
        operate("POST", &of("push"), vapid)?;
        let origin = bench.setup().origin.clone();
        let tenant = Self { origin, key, signer: Signer::new(SECRET, APP), _silent: silent.clone() };
        let mut client = Client::new(tenant.origin.clone())?;
        tenant.retain(&mut client, args.retained)?;
        tenant.register_pushed(&mut client, silent.address)?;
        let limits = args.limits()?;
        if !limits.is_empty() {
            operate("PUT", &of("quotas"), limits.into())?;
        }
        Ok(tenant)
    }

    pub(super) fn token(&self, name: &str) -> String {
        self.signer.token(name, clock::unix_seconds())
    }

    fn retain(&self, client: &mut Client, count: u32) -> Result<(), Error> {
        let numbers: Vec<u32> = (0..count).collect();
        for chunk in numbers.chunks(LINES) {
            let line = |number: &u32| {
                let line = json!({"to": {"topic": format!("retained/{number}")}, "retain": true,
                    "when": "connected", "data": {"number": number}});
                format!("{line}\n")
            };
            self.post_lines(client, "/v1/notifications/batch", &chunk.iter().map(line).collect::<String>())?;
        }
        Ok(())
    }

    fn register_pushed(&self, client: &mut Client, address: SocketAddr) -> Result<(), Error> {
        let line = |number: u32| {
            let endpoint = format!("https://{address}/{number}");
            let keys = json!({"p256dh": P256DH, "auth": AUTH});
            let token = json!({"service": "webpush", "endpoint": endpoint, "keys": keys});
            format!(
                "{}\n",
                json!({"device": format!("pushed-{number}"), "user": "pushed", "push_token": token})
            )
        };
        self.post_lines(client, "/v1/devices/batch", &(0..PUSHED).map(line).collect::<String>())
    }

    fn post_lines(&self, client: &mut Client, path: &str, lines: &str) -> Result<(), Error> {
        let answer = client.expect_success(Request::lines(path, &self.key), lines.as_bytes())?;
        match String::from_utf8_lossy(&answer.body).lines().find(|line| line.contains("\"error\"")) {
            Some(line) => {
                let (request, body) = (format!("a line of POST {path}"), line.to_owned());
                Err(Error::Refused { request, status: 200, body })
            }
            None => Ok(()),
        }
    }
}

fn of(what: &str) -> String {
    format!("/v1/apps/{APP}/{what}")
}

fn ask(
    client: &mut Client,
    token: &str,
    (method, path): (&'static str, &str),
    body: &Value,
) -> Result<Value, Error> {
    let answer = client.expect_success(Request::json(method, path, token), body.to_string().as_bytes())?;
    Ok(serde_json::from_slice(&answer.body).unwrap_or_default())
}

/// A server that accepts connections and never answers.
struct Silent {
    address: SocketAddr,
    kept: Arc<Mutex<Vec<TcpStream>>>,
}

impl Silent {
    fn listen() -> Result<Self, Error> {
        let failed = Error::system("listening for the server");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(&failed)?;
        let port = listener.local_addr().map_err(&failed)?.port();
        let kept: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let keeping = kept.clone();
        let accept = move || {
            for stream in listener.incoming().flatten() {
                let mut kept = keeping.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() == SILENT_MAX {
                    kept.remove(0);
                }
                kept.push(stream);
            }
        };
        std::thread::Builder::new().name("silent".to_owned()).spawn(accept).map_err(&failed)?;
        Ok(Self { address: (Ipv4Addr::LOCALHOST, port).into(), kept })
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        // The thread ends with the process.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}
