//! A server that implements just enough of the API for the load generator: it stores sockets by user, writes
//! a frame to each connected target, and counts. One thread per connection.

use std::collections::{HashMap, HashSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use noroshi_protocol::http::{Head, Limits, parse, push_problem};
use noroshi_protocol::ws::{
    Decoder, Input, Opcode, Role, push_frame, push_upgrade_response, text_frame, upgrade,
};
use serde_json::{Value, json};

pub(super) const API_KEY: &str = "k";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behaviour {
    Well,
    /// Accepts notifications, but neither delivers nor stores them.
    Deaf,
    /// Rejects every notification as temporarily overloaded.
    Busy,
    /// Rejects each device once, and closes each provider's connection after a response.
    Moody,
    /// Rejects all devices.
    Drained,
    /// Rejects every token.
    Strict,
    /// Rejects every device's second log-in with `Retry-After`.
    Crowded,
}

#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    pub(super) requests: u64,
    pub(super) written: u64,
    pub(super) registered: u64,
    pub(super) logged_in: u64,
    pub(super) acked: u64,
    pub(super) pongs: u64,
    /// Devices that are connected now.
    pub(super) open: u64,
}

#[derive(Default)]
struct State {
    counts: Counts,
    /// With the connection's number.
    users: HashMap<String, (u64, TcpStream)>,
    turned_away: HashSet<String>,
    attempts: HashMap<String, u32>,
    topics: HashMap<String, Vec<(String, u64)>>,
    /// Rows stored for offline users.
    inboxes: HashMap<String, u64>,
}

pub(super) struct FakeServer {
    pub(super) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl FakeServer {
    pub(super) fn start(behaviour: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self { address: listener.local_addr().unwrap(), state: Arc::default() };
        let state = server.state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, state) = (stream.unwrap(), state.clone());
                std::thread::spawn(move || serve(stream, &state, behaviour));
            }
        });
        server
    }

    fn counts(&self) -> Counts {
        self.state.lock().unwrap().counts
    }

    /// Requests and the resulting frames.
    pub(super) fn published(&self) -> (u64, u64) {
        (self.counts().requests, self.counts().written)
    }

    pub(super) fn registered(&self) -> u64 {
        self.counts().registered
    }

    pub(super) fn logged_in(&self) -> u64 {
        self.counts().logged_in
    }

    /// Ends the connection of a user's device.
    pub(super) fn end(&self, user: &str) {
        let (_, stream) = self.state.lock().unwrap().users.remove(user).unwrap();
        stream.shutdown(std::net::Shutdown::Both).unwrap();
    }

    pub(super) fn wait_for(&self, what: &str, holds: impl Fn(&Counts) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !holds(&self.counts()) {
            assert!(Instant::now() < deadline, "waited for {what}: {:?}", self.counts());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Ends with the connection.
fn serve(mut stream: TcpStream, state: &Mutex<State>, behaviour: Behaviour) {
    let mut received = Vec::new();
    let mut chunk = [0; 16 << 10];
    loop {
        while let Ok(Some((head, head_len))) = parse(&received, &Limits::default()) {
            if head.path == "/v1/connect" {
                return connect(stream, &head, state, behaviour);
            }
            if matches!(head.path, "/metrics" | "/readyz") {
                let open = state.lock().unwrap().counts.open;
                let metrics = format!("noroshi_connections{{protocol=\"websocket\"}} {open}\n");
                stream.write_all(&response("200 OK", &metrics)).unwrap();
                received.drain(..head_len);
                continue;
            }
            let body_len: usize = head.header("content-length").unwrap().parse().unwrap();
            let Some(body) = received.get(head_len..head_len + body_len) else { break };
            if head.path == "/v1/me" {
                let rows = state.lock().unwrap().inboxes.get(&user(&head)).copied().unwrap_or_default();
                let answer = response("200 OK", &json!({"inbox": rows}).to_string());
                stream.write_all(&answer).unwrap();
                received.drain(..head_len + body_len);
                continue;
            }
            assert_eq!(head.header("authorization"), Some(format!("Bearer {API_KEY}").as_str()));
            let answer = answer(head.path, body, state, behaviour);
            stream.write_all(&answer).unwrap();
            if behaviour == Behaviour::Moody {
                return;
            }
            received.drain(..head_len + body_len);
        }
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return,
            Ok(len) => received.extend_from_slice(&chunk[..len]),
        }
    }
}

fn answer(path: &str, body: &[u8], state: &Mutex<State>, behaviour: Behaviour) -> Vec<u8> {
    let lines = body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let mut state = state.lock().unwrap();
    if path == "/v1/devices/batch" {
        let devices: Vec<Value> = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
        state.counts.registered += devices.len() as u64;
        let results: String =
            devices.iter().map(|device| format!("{}\n", json!({"device": device["device"]}))).collect();
        return response("200 OK", &results);
    }
    if behaviour == Behaviour::Busy {
        let mut out = Vec::new();
        push_problem(&mut out, 503, "busy", "come back later", &[]);
        return out;
    }
    state.counts.requests += 1;
    if matches!(behaviour, Behaviour::Well | Behaviour::Moody | Behaviour::Crowded) {
        for line in lines {
            publish(&serde_json::from_slice(line).unwrap(), &mut state);
        }
    }
    let close =
        if behaviour == Behaviour::Moody { "202 Accepted\r\nConnection: close" } else { "202 Accepted" };
    response(close, r#"{"id":"01890a5d-ac96-774b-bcce-b302099a8057","targets":1}"#)
}

fn publish(notification: &Value, state: &mut State) {
    let ack = if notification["when"] == "stored" { r#","ack":true"# } else { "" };
    let frame = format!(
        r#"{{"t":"msg","id":"01890a5d-ac96-774b-bcce-b302099a8057","data":{}{ack},"sent_at":"2026-01-01T00:00:00Z"}}"#,
        notification["data"]
    );
    let frame = text_frame(frame.as_bytes());
    let users: Vec<String> = match notification["to"]["topic"].as_str() {
        Some(topic) => {
            let is_open = |(user, number): &&(String, u64)| {
                state.users.get(user).is_some_and(|(current, _)| current == number)
            };
            let subscribed = state.topics.get(topic).into_iter().flatten().filter(is_open);
            subscribed.map(|(user, _)| user.clone()).collect()
        }
        None => serde_json::from_value(notification["to"]["users"].clone()).unwrap(),
    };
    for user in users {
        if let Some((_, stream)) = state.users.get_mut(&user) {
            // A device that disconnected may not have been noticed yet.
            state.counts.written += u64::from(stream.write_all(&frame).is_ok());
        } else if !ack.is_empty() {
            *state.inboxes.entry(user).or_default() += 1;
        }
    }
}

fn response(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn connect(mut stream: TcpStream, head: &Head<'_>, state: &Mutex<State>, behaviour: Behaviour) {
    let user = user(head);
    let mut out = Vec::new();
    if behaviour == Behaviour::Drained {
        push_problem(&mut out, 503, "unavailable", "devices are moved away from this node", &[]);
        let _ = stream.write_all(&out); // the client may have given up already
        return;
    }
    if behaviour == Behaviour::Strict {
        push_problem(&mut out, 401, "unauthorized", "the token's signature does not verify", &[]);
        let _ = stream.write_all(&out); // the client may have given up already
        return;
    }
    if behaviour == Behaviour::Moody && state.lock().unwrap().turned_away.insert(user.clone()) {
        push_problem(&mut out, 503, "busy", "come back later", &[]);
        let _ = stream.write_all(&out); // as above
        return;
    }
    let attempt = {
        let mut state = state.lock().unwrap();
        let attempt = state.attempts.entry(user.clone()).or_default();
        *attempt += 1;
        *attempt
    };
    if behaviour == Behaviour::Crowded && attempt == 2 {
        push_problem(&mut out, 503, "overloaded", "come back later", &[("Retry-After", "1")]);
        let _ = stream.write_all(&out); // as above
        return;
    }
    push_upgrade_response(&mut out, &upgrade(head).unwrap());
    let ready = json!({"t": "ready", "device": user, "session": "1", "ping_s": 240}).to_string();
    push_frame(&mut out, Opcode::Text, ready.as_bytes());
    push_frame(&mut out, Opcode::Ping, b"p");
    let number = {
        let mut state = state.lock().unwrap();
        state.counts.logged_in += 1;
        state.counts.open += 1;
        let number = state.counts.logged_in;
        state.users.insert(user.clone(), (number, stream.try_clone().unwrap()));
        stream.write_all(&out).unwrap();
        number
    };
    let mut decoder = Decoder::new();
    let mut chunk = [0; 4 << 10];
    while let Ok(len @ 1..) = stream.read(&mut chunk) {
        decoder
            .feed(Role::Server, &mut chunk[..len], 4 << 10, &mut |input| {
                said(&input, (&user, number), &mut state.lock().unwrap());
                ControlFlow::Continue(())
            })
            .unwrap();
    }
    let mut state = state.lock().unwrap();
    state.counts.open -= 1;
    if state.users.get(&user).is_some_and(|(current, _)| *current == number) {
        state.users.remove(&user);
    }
}

/// The user in the token.
fn user(head: &Head<'_>) -> String {
    let token = head.header("authorization").unwrap().strip_prefix("Bearer ").unwrap();
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    claims["sub"].as_str().unwrap().to_owned()
}

fn said(input: &Input<'_>, (user, number): (&str, u64), state: &mut State) {
    match input {
        Input::Pong(b"p") => state.counts.pongs += 1,
        Input::Text(text) => {
            let frame: Value = serde_json::from_str(text).unwrap();
            match frame["t"].as_str() {
                Some("ack") => state.counts.acked += frame["ids"].as_array().unwrap().len() as u64,
                Some("sub") => {
                    let topic = frame["topics"][0].as_str().unwrap().to_owned();
                    state.topics.entry(topic).or_default().push((user.to_owned(), number));
                }
                Some("ping") => {
                    let pong = text_frame(br#"{"t":"pong"}"#);
                    state.users.get_mut(user).unwrap().1.write_all(&pong).unwrap();
                }
                other => panic!("unexpected frame {other:?}"),
            }
        }
        _ => {}
    }
}
