//! Finds the servers: the configured one, the master that the sentinels report, or the masters of a cluster with their
//! slots. `topology` stores the result and runs a task for each server.

use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{PushInfo, PushKind, Value};
use tokio_util::sync::CancellationToken;

use super::address::{Host, Servers};
use super::dial::{error_of, send};
use super::slot::SLOTS;
use super::topology::{Layout, TopologyState};
use crate::Error;
use crate::metrics::Kind;
use crate::random::jittered;

/// The minimum time between two queries.
const PAUSE: Duration = Duration::from_millis(50);
/// Periodic queries without a trigger.
const SENTINEL_EVERY: Duration = Duration::from_secs(1);
const CLUSTER_EVERY: Duration = Duration::from_secs(10);
const SERVERS_MAX: usize = 250;

pub(crate) async fn run(state: Arc<TopologyState>, servers: &Servers, stop: CancellationToken) {
    let keeping = async {
        match servers {
            Servers::Standalone(host) => {
                state.apply(&stop, &Layout { hosts: vec![host.clone()], slots: Vec::new() });
                std::future::pending().await
            }
            Servers::Cluster(seeds) => keep_cluster(&state, &stop, seeds).await,
            Servers::Sentinel { sentinels, master } => keep_sentinel(&state, &stop, sentinels, master).await,
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = keeping => {}
    }
}

async fn keep_cluster(state: &Arc<TopologyState>, stop: &CancellationToken, seeds: &[Host]) {
    let mut reported = None;
    loop {
        match find_cluster(state, seeds).await {
            Ok(mut layout) => {
                reported = None;
                // A server that takes over slots stays until the next look, unless commands are redirected to it.
                let importing = state.importing.lock().take();
                let is_new = |host: &Host| !layout.hosts.contains(host);
                layout.hosts.extend(importing.filter(is_new));
                state.apply(stop, &layout);
            }
            Err(error) => {
                warn_once(&mut reported, error, "no server of the redis cluster reports the others")
            }
        }
        let wait = match state.load().servers.is_empty() {
            true => jittered(SENTINEL_EVERY),
            false => jittered(CLUSTER_EVERY),
        };
        tokio::time::sleep(PAUSE).await;
        // The next query covers all triggers until then.
        let _ = tokio::time::timeout(wait, state.context.refresh.notified()).await;
    }
}

/// Logs each reason once.
fn warn_once(reported: &mut Option<Error>, error: Error, what: &str) {
    if reported.as_ref() != Some(&error) {
        tracing::warn!(%error, "{what}");
        *reported = Some(error);
    }
}

/// Queries connected servers, then the configured ones. Returns the last error.
async fn find_cluster(state: &TopologyState, seeds: &[Host]) -> Result<Layout, Error> {
    let servers = state.load();
    for server in &servers.servers {
        if let Ok((connection, _)) = server.connection()
            && let Ok(layout) = query_slots(state, connection, &server.host).await
        {
            return Ok(layout);
        }
    }
    let mut last = Error::Unavailable("no host is configured".into());
    for host in seeds {
        let layout = match state.context.dialer.server(host).await {
            Ok(connection) => query_slots(state, connection, host).await,
            Err(error) => Err(error),
        };
        match layout {
            Ok(layout) => return Ok(layout),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn query_slots(
    state: &TopologyState,
    mut connection: MultiplexedConnection,
    queried: &Host,
) -> Result<Layout, Error> {
    state.context.metrics.commands(Kind::Upkeep).inc();
    let mut cmd = ::redis::cmd("CLUSTER");
    match send(&mut connection, cmd.arg("SLOTS")).await? {
        Value::Array(ranges) => layout_of(&ranges, queried),
        _ => Err(Error::Refused("the answer to CLUSTER SLOTS is not an array".to_owned())),
    }
}

/// `[first, last, [host, port, …] of the master, [replica], …]` for each range.
fn layout_of(ranges: &[Value], queried: &Host) -> Result<Layout, Error> {
    let malformed = || Error::Refused("the answer to CLUSTER SLOTS has an invalid form".to_owned());
    let mut layout = Layout { hosts: Vec::new(), slots: vec![0; usize::from(SLOTS)] };
    for range in ranges {
        let Value::Array(range) = range else { return Err(malformed()) };
        let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = range.as_slice() else {
            return Err(malformed());
        };
        let [name, Value::Int(port), ..] = master.as_slice() else { return Err(malformed()) };
        // A server that does not know its own name omits it: it is the queried one.
        let name = match name {
            Value::BulkString(name) if !name.is_empty() && name != b"?" => {
                String::from_utf8(name.clone()).map_err(|_| malformed())?
            }
            _ => queried.name.clone(),
        };
        let host = Host { name, port: u16::try_from(*port).map_err(|_| malformed())? };
        let index = layout.hosts.iter().position(|known| *known == host).unwrap_or_else(|| {
            layout.hosts.push(host);
            layout.hosts.len() - 1
        });
        if index >= SERVERS_MAX {
            return Err(Error::Refused(format!("the cluster has more than {SERVERS_MAX} masters")));
        }
        let (first, last) = (usize::try_from(*first), usize::try_from(*last));
        let (Ok(first), Ok(last)) = (first, last) else { return Err(malformed()) };
        let slots = layout.slots.get_mut(first..=last.max(first)).ok_or_else(malformed)?;
        slots.fill(u8::try_from(index + 1).map_err(|_| malformed())?);
    }
    match layout.hosts.is_empty() {
        true => Err(Error::Unavailable("the redis cluster has no slots assigned yet".into())),
        false => Ok(layout),
    }
}

async fn keep_sentinel(
    state: &Arc<TopologyState>,
    stop: &CancellationToken,
    sentinels: &[Host],
    master: &str,
) {
    let mut next = 0;
    let mut reported = None;
    loop {
        let sentinel = &sentinels[next % sentinels.len()];
        if let Err(error) = follow(state, stop, sentinel, master).await {
            warn_once(&mut reported, error, "a sentinel does not report the redis master");
        }
        next += 1;
        // All were queried: pause before the next round.
        let pause = if next % sentinels.len() == 0 { SENTINEL_EVERY } else { PAUSE };
        tokio::time::sleep(jittered(pause)).await;
    }
}

/// Stays with one sentinel while it answers. Queries it at every `+switch-master`, whenever a server fails, and once a
/// second.
async fn follow(
    state: &Arc<TopologyState>,
    stop: &CancellationToken,
    sentinel: &Host,
    master: &str,
) -> Result<(), Error> {
    let switched = state.clone();
    let receive = move |push: PushInfo| {
        if push.kind == PushKind::Message {
            switched.context.refresh.notify_one();
        }
        Ok::<(), ::redis::aio::SendError>(())
    };
    let mut connection = state.context.dialer.sentinel(sentinel, receive).await?;
    connection.subscribe("+switch-master").await.map_err(|error| error_of(&error))?;
    loop {
        let host = query_sentinel(state, &mut connection, master).await?;
        if state.load().servers.first().is_none_or(|server| server.host != host) {
            state.apply(stop, &Layout { hosts: vec![host], slots: Vec::new() });
        }
        tokio::time::sleep(PAUSE).await;
        let _ = tokio::time::timeout(jittered(SENTINEL_EVERY), state.context.refresh.notified()).await;
    }
}

async fn query_sentinel(
    state: &TopologyState,
    connection: &mut MultiplexedConnection,
    master: &str,
) -> Result<Host, Error> {
    state.context.metrics.commands(Kind::Upkeep).inc();
    let mut cmd = ::redis::cmd("SENTINEL");
    cmd.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
    let answer: Option<(String, u16)> =
        cmd.query_async(connection).await.map_err(|error| error_of(&error))?;
    let (name, port) =
        answer.ok_or_else(|| Error::Refused(format!("the sentinel does not know the master '{master}'")))?;
    Ok(Host { name, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: i64, last: i64, name: &str, port: i64) -> Value {
        let master = vec![Value::BulkString(name.as_bytes().to_vec()), Value::Int(port)];
        Value::Array(vec![Value::Int(first), Value::Int(last), Value::Array(master)])
    }

    #[test]
    fn slots_are_parsed_and_invalid_answers_rejected() {
        let queried = Host { name: "queried".to_owned(), port: 1 };
        let good = [range(0, 100, "", 7), range(101, 16_383, "b", 8)];
        let layout = layout_of(&good, &queried).expect("layout");
        assert_eq!(layout.hosts[0], Host { name: "queried".to_owned(), port: 7 });
        assert_eq!((layout.slots[100], layout.slots[101]), (1, 2));
        for bad in [
            range(0, 16_384, "a", 1),
            range(-1, 2, "a", 1),
            range(5, 4, "a", 70_000),
            Value::Nil,
            Value::Array(vec![]),
        ] {
            assert!(layout_of(&[bad], &queried).is_err());
        }
        assert!(matches!(layout_of(&[], &queried), Err(Error::Unavailable(_))));
    }
}
