//! A tunnel through an HTTP proxy: `CONNECT` (RFC 9110 §9.3.6) and the head of its response. Reads no byte after that
//! head from the socket: it belongs to the tunnel.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::Error;
use crate::target::Target;

/// A response to `CONNECT` has a handful of headers.
const HEAD_BYTES_MAX: usize = 16 << 10;
const END: &[u8] = b"\r\n\r\n";

/// Requests a tunnel to `target` from the proxy at the other end of `stream`. Without a timeout.
pub(crate) async fn open<S>(stream: &mut S, authorization: Option<&str>, target: &Target) -> Result<(), Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let broken = |error: io::Error| Error::Proxy { reason: format!("closed the connection: {error}") };
    // RFC 9112 §3.2.3: host and port, the port always.
    let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
    if let Some(authorization) = authorization {
        request.push_str(&format!("Proxy-Authorization: {authorization}\r\n"));
    }
    request.push_str("\r\n");
    stream.write_all(request.as_bytes()).await.map_err(broken)?;
    stream.flush().await.map_err(broken)?;
    let head = read_head(stream).await?;
    match status(&head) {
        Some(200..=299) => Ok(()),
        Some(407) => Err(Error::Proxy { reason: "requires other credentials (407)".to_owned() }),
        Some(status) => Err(Error::Proxy { reason: format!("answered {status} for {target}") }),
        None => Err(Error::Proxy { reason: "did not answer like an HTTP proxy".to_owned() }),
    }
}

/// Byte by byte, since what follows belongs to the tunnel: some 100 short reads for each connection.
async fn read_head<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Vec<u8>, Error> {
    let failed = |reason: String| Error::Proxy { reason };
    let mut head = Vec::new();
    while !head.ends_with(END) {
        if head.len() >= HEAD_BYTES_MAX {
            return Err(failed(format!("answered with a head of more than {HEAD_BYTES_MAX} bytes")));
        }
        let byte =
            stream.read_u8().await.map_err(|error| failed(format!("closed the connection: {error}")))?;
        head.push(byte);
    }
    Ok(head)
}

/// `HTTP/1.1 200 …`
fn status(head: &[u8]) -> Option<u16> {
    let line = head.split(|byte| *byte == b'\r').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let digits = line.strip_prefix("HTTP/1.")?.get(2..5)?;
    digits.parse().ok()
}
