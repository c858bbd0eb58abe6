//! Connections that the noisy app's devices open and close: blocking, one at a time per thread.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use noroshi_protocol::mqtt::Qos;
use noroshi_protocol::ws::{Opcode, push_masked_frame};

use crate::http::Origin;
use crate::speech::{Login, MASK, mqtt};

const TIMEOUT: Duration = Duration::from_secs(5);

/// Opens a WebSocket, and reads the head of the response.
fn upgrade(origin: &Origin, path: &str, protocol: &str, token: Option<&str>) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(origin.address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.set_nodelay(true)?;
    let bearer = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{bearer}\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n",
        origin.host
    );
    stream.write_all(request.as_bytes())?;
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte)? == 0 || head.len() > 16 << 10 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.push(byte[0]);
    }
    match head.starts_with(b"HTTP/1.1 101") {
        true => Ok(stream),
        false => Err(io::ErrorKind::ConnectionRefused.into()),
    }
}

/// A device that connects, reads the first frame and disconnects without a close frame.
pub(super) fn come_and_go(origin: &Origin, token: &str) -> io::Result<()> {
    let mut stream = upgrade(origin, "/v1/connect", "noroshi.v1", Some(token))?;
    stream.read(&mut [0; 4_096]).map(drop)
}

/// Subscribes to everything and reads retained messages for `patience`. Returns the number of bytes.
pub(super) fn subscribe_to_all(
    origin: &Origin,
    device: &str,
    token: &str,
    patience: Duration,
) -> io::Result<u64> {
    let mut stream = upgrade(origin, "/mqtt", "mqtt", None)?;
    let login = Login { host: &origin.host, name: device, secret: Some(token), topic: None };
    let mut frames = Vec::new();
    for packet in [mqtt::connect(login), mqtt::subscribe(&["#"], Qos::AtMostOnce)] {
        push_masked_frame(&mut frames, Opcode::Binary, &packet, MASK);
    }
    stream.write_all(&frames)?;
    let (until, mut bytes, mut buffer) = (Instant::now() + patience, 0, vec![0; 64 << 10]);
    stream.set_read_timeout(Some(patience))?;
    while Instant::now() < until {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => bytes += len as u64,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(bytes)
}
