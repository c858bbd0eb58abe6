//! A tunnel through an HTTP proxy: `CONNECT` (RFC 9110 §9.3.6) and the head of its response. Reads no byte after that
//! head from the socket: it belongs to the tunnel.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::ProxyUrl;
use crate::Error;
use crate::target::Target;

/// A response to `CONNECT` has a handful of headers.
const HEAD_BYTES_MAX: usize = 16 << 10;
const END: &[u8] = b"\r\n\r\n";

/// Requests a tunnel to `target` from the proxy at the other end of `stream`. Without a timeout.
pub(crate) async fn open(stream: &mut TcpStream, proxy: &ProxyUrl, target: &Target) -> Result<(), Error> {
    let broken = |error: io::Error| Error::Proxy { reason: format!("closed the connection: {error}") };
    // RFC 9112 §3.2.3: host and port, the port always.
    let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
    if let Some(authorization) = &proxy.authorization {
        request.push_str(&format!("Proxy-Authorization: {authorization}\r\n"));
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await.map_err(broken)?;
    let head = read_head(stream).await?;
    match status(&head) {
        Some(200..=299) => Ok(()),
        Some(407) => Err(Error::Proxy { reason: "requires other credentials (407)".to_owned() }),
        Some(status) => Err(Error::Proxy { reason: format!("answered {status} for {target}") }),
        None => Err(Error::Proxy { reason: "did not answer like an HTTP proxy".to_owned() }),
    }
}

async fn read_head(stream: &mut TcpStream) -> Result<Vec<u8>, Error> {
    let failed = |reason: String| Error::Proxy { reason };
    let mut head = Vec::new();
    let mut ahead = [0; 1_024];
    loop {
        let seen = stream
            .peek(&mut ahead)
            .await
            .map_err(|error| failed(format!("closed the connection: {error}")))?;
        if seen == 0 {
            return Err(failed("closed the connection".to_owned()));
        }
        let before = head.len();
        head.extend_from_slice(&ahead[..seen]);
        // The end may be split between the bytes read before and these.
        let from = before.saturating_sub(END.len() - 1);
        let end = head[from..].windows(END.len()).position(|bytes| bytes == END);
        if let Some(end) = end {
            head.truncate(from + end + END.len());
        }
        let taken = head.len() - before;
        stream
            .read_exact(&mut ahead[..taken])
            .await
            .map_err(|error| failed(format!("closed the connection: {error}")))?;
        if end.is_some() {
            return Ok(head);
        }
        if head.len() > HEAD_BYTES_MAX {
            return Err(failed(format!("answered with a head of more than {HEAD_BYTES_MAX} bytes")));
        }
    }
}

/// `HTTP/1.1 200 …`
fn status(head: &[u8]) -> Option<u16> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let digits = line.strip_prefix("HTTP/1.")?.get(2..5)?;
    digits.parse().ok()
}
