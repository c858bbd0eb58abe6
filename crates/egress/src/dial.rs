//! Opens TCP to the first of several addresses that answers.
//!
//! RFC 8305 ("happy eyeballs"): address families alternate, and the next address is tried when the previous one has
//! failed or was silent for a moment. The first that answers wins, and the other attempts are dropped.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// RFC 8305 §5, "Connection Attempt Delay": the recommended 250 ms.
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// `addresses` must not be empty. Cancel-safe: attempts in progress are dropped.
pub(crate) async fn dial(
    addresses: &[IpAddr],
    port: u16,
    address_timeout: Duration,
) -> io::Result<(TcpStream, SocketAddr)> {
    let mut waiting = in_turn(addresses).into_iter();
    let mut attempts = JoinSet::new();
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    loop {
        if let Some(ip) = waiting.next() {
            attempts.spawn(attempt(SocketAddr::new(ip, port), address_timeout));
        } else if attempts.is_empty() {
            return Err(failure);
        }
        let more_to_try = waiting.len() > 0;
        tokio::select! {
            Some(result) = attempts.join_next() => match result {
                Ok(Ok(connected)) => return Ok(connected),
                Ok(Err(error)) => failure = error,
                Err(error) => failure = io::Error::other(error),
            },
            () = sleep(ATTEMPT_DELAY), if more_to_try => {}
        }
    }
}

async fn attempt(address: SocketAddr, limit: Duration) -> io::Result<(TcpStream, SocketAddr)> {
    let stream = timeout(limit, TcpStream::connect(address))
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "connect timed out"))??;
    // Requests are written as a whole.
    stream.set_nodelay(true)?;
    Ok((stream, address))
}

/// Alternates the families, beginning with that of the first address (RFC 8305 §4).
fn in_turn(addresses: &[IpAddr]) -> Vec<IpAddr> {
    let first_is_v4 = addresses.first().is_some_and(IpAddr::is_ipv4);
    let (mut first, mut second): (Vec<IpAddr>, Vec<IpAddr>) =
        addresses.iter().copied().partition(|address| address.is_ipv4() == first_is_v4);
    let mut turns = Vec::with_capacity(addresses.len());
    first.reverse();
    second.reverse();
    while !first.is_empty() || !second.is_empty() {
        turns.extend(first.pop());
        turns.extend(second.pop());
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_alternate() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        let given = ["::1", "::2", "::3", "1.1.1.1", "1.1.1.2"].map(ip);
        assert_eq!(in_turn(&given), ["::1", "1.1.1.1", "::2", "1.1.1.2", "::3"].map(ip));
        assert_eq!(in_turn(&given[3..]), given[3..]);
    }
}
