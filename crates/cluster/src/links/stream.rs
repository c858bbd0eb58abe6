//! Reads and writes units on one half of a connection.

use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::wire::{Malformed, Unit};

/// The least room for a read: TLS records have at most 16 KiB.
const READ_BYTES: usize = 16 << 10;
/// How long a write may take. The peer reads all the time, unless it is stalled.
const WRITE_TIMEOUT: Duration = Duration::from_secs(3);

/// Why a link ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Ended {
    #[error("the address cannot be reached: {0}")]
    Connect(String),
    #[error("the TLS handshake failed: {0}; do all nodes use the same database?")]
    Handshake(String),
    #[error("the node does not hold the lease that its address was announced for")]
    Refused,
    #[error("the connection broke: {0}")]
    Broken(String),
    #[error("the node did not answer in time")]
    Silent,
    #[error("the node sent something malformed")]
    Malformed,
    /// By this node.
    #[error("the link was closed")]
    Closed,
}

impl From<std::io::Error> for Ended {
    fn from(error: std::io::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

impl From<Malformed> for Ended {
    fn from(Malformed: Malformed) -> Self {
        Self::Malformed
    }
}

pub(super) struct Reader<R> {
    half: R,
    bytes: BytesMut,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(super) fn new(half: R) -> Self {
        Self { half, bytes: BytesMut::new() }
    }

    /// Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Unit, Ended> {
        loop {
            if let Some(unit) = Unit::take(&mut self.bytes)? {
                return Ok(unit);
            }
            self.bytes.reserve(READ_BYTES);
            if self.half.read_buf(&mut self.bytes).await? == 0 {
                return Err(Ended::Broken("the node closed it".to_owned()));
            }
        }
    }
}

/// Writes and flushes. Not cancel-safe.
pub(super) async fn write(half: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Result<(), Ended> {
    let writing = async {
        half.write_all(bytes).await?;
        half.flush().await
    };
    match tokio::time::timeout(WRITE_TIMEOUT, writing).await {
        Ok(written) => Ok(written?),
        Err(_) => Err(Ended::Silent),
    }
}

/// Writes one unit.
pub(super) async fn write_unit(half: &mut (impl AsyncWrite + Unpin), unit: &Unit) -> Result<(), Ended> {
    let mut bytes = BytesMut::new();
    unit.write(&mut bytes);
    write(half, &bytes).await
}
