//! A server with its own protocol: devices send their name and join, published messages reach all joined
//! devices, possibly several in one frame. One thread per connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use noroshi_protocol::http::{Limits, parse};
use noroshi_protocol::ws::{Decoder, Input, Role, push_upgrade_response, text_frame, upgrade};

#[derive(Default)]
struct State {
    joined: Mutex<Vec<TcpStream>>,
    pings_answered: AtomicU64,
}

pub(super) struct ForeignServer {
    pub(super) address: SocketAddr,
    state: Arc<State>,
}

impl ForeignServer {
    pub(super) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self { address: listener.local_addr().unwrap(), state: Arc::default() };
        let state = server.state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, state) = (stream.unwrap(), state.clone());
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        server
    }

    pub(super) fn pings_answered(&self) -> u64 {
        self.state.pings_answered.load(Ordering::Relaxed)
    }
}

/// Ends with the connection.
fn serve(mut stream: TcpStream, state: &State) {
    let mut received = Vec::new();
    let mut chunk = [0; 16 << 10];
    loop {
        if let Ok(Some((head, head_len))) = parse(&received, &Limits::default()) {
            if head.method == "GET" {
                let name = head.query.and_then(|query| query.strip_prefix("as=")).unwrap_or_default();
                let (name, mut out) = (name.to_owned(), Vec::new());
                push_upgrade_response(&mut out, &upgrade(&head).unwrap());
                stream.write_all(&out).unwrap();
                return talk(stream, &name, state);
            }
            let body_len: usize = head.header("content-length").unwrap().parse().unwrap();
            if let Some(body) = received.get(head_len..head_len + body_len) {
                assert_eq!((head.path, head.header("x-key")), ("/all", Some("k")));
                tell_all(std::str::from_utf8(body).unwrap(), state);
                stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
                received.drain(..head_len + body_len);
                continue;
            }
        }
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return,
            Ok(len) => received.extend_from_slice(&chunk[..len]),
        }
    }
}

fn tell_all(text: &str, state: &State) {
    for stream in state.joined.lock().unwrap().iter_mut() {
        let _ = stream.write_all(&text_frame(text.as_bytes())); // it may have disconnected
    }
}

fn talk(mut stream: TcpStream, name: &str, state: &State) {
    let (mut decoder, mut chunk, mut named) = (Decoder::new(), [0; 4 << 10], false);
    while let Ok(len @ 1..) = stream.read(&mut chunk) {
        let hear = &mut |input: Input<'_>| {
            if let Input::Text(text) = input {
                if text.strip_prefix("name:") == Some(name) && !name.is_empty() {
                    named = true;
                } else if text == "join" {
                    assert!(named, "frames come in their order");
                    // Added before the acknowledgement is sent, so that a joined device misses nothing.
                    let mut joined = state.joined.lock().unwrap();
                    joined.push(stream.try_clone().unwrap());
                    stream.write_all(&[text_frame(b"you joined"), text_frame(b"2")].concat()).unwrap();
                } else if text == "3" {
                    state.pings_answered.fetch_add(1, Ordering::Relaxed);
                } else if let Some(said) = text.strip_prefix("say:") {
                    tell_all(said, state);
                } else {
                    panic!("{name} says {text}");
                }
            }
            ControlFlow::Continue(())
        };
        decoder.feed(Role::Server, &mut chunk[..len], 4 << 10, hear).unwrap();
    }
}
