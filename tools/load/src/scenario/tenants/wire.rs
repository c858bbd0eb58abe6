//! Connections that the noisy app's devices open and close: blocking, one at a time per thread, with a
//! minimal implementation of WebSocket and MQTT.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::http::Origin;

const TIMEOUT: Duration = Duration::from_secs(5);
/// First length byte of a frame that is masked with zeros (RFC 6455 §5.3).
const MASKED: u8 = 0x80;
const BINARY: u8 = 0x82;

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
    stream.write_all(&frame(&connect(device, token)))?;
    stream.write_all(&frame(&SUBSCRIBE))?;
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

/// SUBSCRIBE 1 to `#` with QoS 0 (MQTT 3.1.1 §3.8).
const SUBSCRIBE: [u8; 8] = [0x82, 6, 0, 1, 0, 1, b'#', 0];

/// CONNECT of MQTT 3.1.1 with a clean session, the device as user name and its token as password (§3.1).
fn connect(device: &str, token: &str) -> Vec<u8> {
    let mut body = vec![0, 4, b'M', b'Q', b'T', b'T', 4, 0b1100_0010, 0, 60];
    for text in ["tenants", device, token] {
        body.extend_from_slice(&(text.len() as u16).to_be_bytes());
        body.extend_from_slice(text.as_bytes());
    }
    let mut packet = vec![0x10];
    let mut left = body.len();
    // §2.2.3
    loop {
        let more = if left > 127 { 0x80 } else { 0 };
        packet.push((left % 128) as u8 | more);
        left /= 128;
        if left == 0 {
            break;
        }
    }
    packet.extend(body);
    packet
}

/// A binary frame of a client, at most 65,535 bytes long.
fn frame(payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![BINARY];
    match payload.len() {
        len @ ..126 => frame.push(MASKED | len as u8),
        len => {
            frame.push(MASKED | 126);
            frame.extend_from_slice(&(len as u16).to_be_bytes());
        }
    }
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(payload);
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_have_correct_lengths() {
        let packet = connect("d", &"t".repeat(200));
        // 10 + (2 + 7) + (2 + 1) + (2 + 200)
        assert_eq!(packet[..3], [0x10, (224 - 128) | 0x80, 1]);
        assert_eq!(packet.len(), 3 + 224);
        assert_eq!(frame(&SUBSCRIBE)[..2], [0x82, 0x80 | 8]);
        assert_eq!(frame(&[0; 300])[..4], [0x82, 0xfe, 1, 44]);
    }
}
