//! A receiver of webhooks: one request per connection, with a configured answer.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use parking_lot::Mutex;

#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) headers: HashMap<String, String>,
    pub(crate) body: String,
}

pub(crate) struct Receiver {
    pub(crate) url: String,
    pub(crate) status: Arc<AtomicU16>,
    pub(crate) received: Arc<Mutex<Vec<Received>>>,
}

pub(crate) fn start() -> Receiver {
    let listener = TcpListener::bind("127.0.0.1:0").expect("port");
    let url = format!("http://{}/events", listener.local_addr().expect("address"));
    let (status, received) = (Arc::new(AtomicU16::new(204)), Arc::<Mutex<Vec<Received>>>::default());
    let (answers, heard) = (status.clone(), received.clone());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let Some((stream, request)) = read(stream) else { continue };
            let status = answers.load(Ordering::SeqCst);
            if status < 300 {
                heard.lock().push(request);
            }
            answer(stream, status);
        }
    });
    Receiver { url, status, received }
}

fn read(mut stream: TcpStream) -> Option<(TcpStream, Received)> {
    let mut bytes = Vec::new();
    let mut piece = [0; 64 << 10];
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
            let headers: HashMap<String, String> = head
                .lines()
                .skip(1)
                .filter_map(|line| line.split_once(": "))
                .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
                .collect();
            let length: usize = headers.get("content-length")?.parse().ok()?;
            if bytes.len() >= end + 4 + length {
                let body = String::from_utf8(bytes[end + 4..].to_vec()).ok()?;
                return Some((stream, Received { headers, body }));
            }
        }
        match stream.read(&mut piece).ok()? {
            0 => return None,
            count => bytes.extend_from_slice(&piece[..count]),
        }
    }
}

fn answer(mut stream: TcpStream, status: u16) {
    let text = format!("HTTP/1.1 {status} told\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    let _ = stream.write_all(text.as_bytes());
}
