//! Knows where the servers are: the one that was named, the master that the sentinels name, or those that share the
//! slots of a cluster. Starts a task for each server that appears, and stops those of servers that left.

use std::sync::Arc;
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{PushInfo, PushKind, Value};
use tokio_util::sync::CancellationToken;

use super::address::{Host, Servers};
use super::connections::{Shared, Topology};
use super::dial::{answered, error_of};
use super::random::jittered;
use super::server::Server;
use super::slot::SLOTS;
use crate::Error;
use crate::metrics::Kind;

/// Between two looks at the least, whoever asks for one.
const PAUSE: Duration = Duration::from_millis(50);
/// A look without a reason.
const SENTINEL_EVERY: Duration = Duration::from_secs(1);
const CLUSTER_EVERY: Duration = Duration::from_secs(10);
const SERVERS_MAX: usize = 250;

pub(crate) async fn run(shared: Arc<Shared>, stop: CancellationToken) {
    let keeping = async {
        match &shared.servers {
            Servers::Standalone(host) => {
                apply(&shared, &stop, &Layout { hosts: vec![host.clone()], slots: Vec::new() });
                std::future::pending().await
            }
            Servers::Cluster(seeds) => keep_cluster(&shared, &stop, seeds).await,
            Servers::Sentinel { sentinels, master } => keep_sentinel(&shared, &stop, sentinels, master).await,
        }
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = keeping => {}
    }
}

/// Which servers there are, and who keeps what.
struct Layout {
    hosts: Vec<Host>,
    slots: Vec<u8>,
}

impl Layout {
    /// A server that slots move to; it is left again with the next look, if it has none by then and is not asked.
    fn add(&mut self, importing: Option<Host>) {
        self.hosts.extend(importing.filter(|host| !self.hosts.contains(host)));
    }
}

fn apply(shared: &Arc<Shared>, stop: &CancellationToken, layout: &Layout) {
    let old = shared.topology.load_full();
    let mut servers = Vec::with_capacity(layout.hosts.len());
    for host in &layout.hosts {
        let known = old.servers.iter().find(|server| server.host == *host);
        servers.push(known.cloned().unwrap_or_else(|| {
            tracing::info!(server = %host, "a redis server to use");
            let server = Arc::new(Server::new(host.clone(), stop.child_token()));
            tokio::spawn(server.clone().run(shared.clone()));
            server
        }));
    }
    let gone = old.servers.iter().filter(|server| !layout.hosts.contains(&server.host));
    let gone: Vec<_> = gone.cloned().collect();
    shared.topology.store(Arc::new(Topology { servers, slots: layout.slots.clone() }));
    for server in gone {
        tracing::info!(server = %server.host, "a redis server no longer in use");
        server.stop.cancel();
    }
    shared.changed();
}

async fn keep_cluster(shared: &Arc<Shared>, stop: &CancellationToken, seeds: &[Host]) {
    let mut told = None;
    loop {
        match find_cluster(shared, seeds).await {
            Ok(mut layout) => {
                told = None;
                layout.add(shared.importing.lock().take());
                apply(shared, stop, &layout);
            }
            Err(error) => {
                tell_once(&mut told, error, "no server of the redis cluster says where the others are")
            }
        }
        let wait = match shared.topology.load().servers.is_empty() {
            true => jittered(SENTINEL_EVERY),
            false => jittered(CLUSTER_EVERY),
        };
        tokio::time::sleep(PAUSE).await;
        // What happened since is answered by the next look.
        let _ = tokio::time::timeout(wait, shared.refresh.notified()).await;
    }
}

/// Each reason is logged once.
fn tell_once(told: &mut Option<Error>, error: Error, what: &str) {
    if told.as_ref() != Some(&error) {
        tracing::warn!(%error, "{what}");
        *told = Some(error);
    }
}

/// Asks those that are connected, then those that were named; the last one's error.
async fn find_cluster(shared: &Shared, seeds: &[Host]) -> Result<Layout, Error> {
    let servers = shared.topology.load_full();
    for server in &servers.servers {
        if let Ok((connection, _)) = server.connection()
            && let Ok(layout) = ask_slots(shared, connection, &server.host).await
        {
            return Ok(layout);
        }
    }
    let mut last = Error::Unavailable("no host was named".into());
    for host in seeds {
        let layout = match shared.dialer.server(host).await {
            Ok(connection) => ask_slots(shared, connection, host).await,
            Err(error) => Err(error),
        };
        match layout {
            Ok(layout) => return Ok(layout),
            Err(error) => last = error,
        }
    }
    Err(last)
}

async fn ask_slots(
    shared: &Shared,
    mut connection: MultiplexedConnection,
    asked: &Host,
) -> Result<Layout, Error> {
    shared.metrics.commands(Kind::Upkeep).inc();
    let mut cmd = ::redis::cmd("CLUSTER");
    let answer = connection.send_packed_command(cmd.arg("SLOTS")).await;
    match answer.map_err(|error| error_of(&error))? {
        Value::Array(ranges) => layout_of(&ranges, asked),
        Value::ServerError(error) => Err(answered(&error)),
        _ => Err(Error::Refused("CLUSTER SLOTS was not answered by an array".to_owned())),
    }
}

/// `[first, last, [host, port, …] of the master, [replica], …]` for each range.
fn layout_of(ranges: &[Value], asked: &Host) -> Result<Layout, Error> {
    let malformed = || Error::Refused("CLUSTER SLOTS has another form than it should".to_owned());
    let mut layout = Layout { hosts: Vec::new(), slots: vec![0; usize::from(SLOTS)] };
    for range in ranges {
        let Value::Array(range) = range else { return Err(malformed()) };
        let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = range.as_slice() else {
            return Err(malformed());
        };
        let [name, Value::Int(port), ..] = master.as_slice() else { return Err(malformed()) };
        // A server that does not know its own name leaves it out: it is the one we asked.
        let name = match name {
            Value::BulkString(name) if !name.is_empty() && name != b"?" => {
                String::from_utf8(name.clone()).map_err(|_| malformed())?
            }
            _ => asked.name.clone(),
        };
        let host = Host { name, port: u16::try_from(*port).map_err(|_| malformed())? };
        let index = layout.hosts.iter().position(|known| *known == host).unwrap_or_else(|| {
            layout.hosts.push(host);
            layout.hosts.len() - 1
        });
        if index >= SERVERS_MAX {
            return Err(Error::Refused(format!("a cluster of more than {SERVERS_MAX} masters")));
        }
        let (first, last) = (usize::try_from(*first), usize::try_from(*last));
        let (Ok(first), Ok(last)) = (first, last) else { return Err(malformed()) };
        let slots = layout.slots.get_mut(first..=last.max(first)).ok_or_else(malformed)?;
        slots.fill(u8::try_from(index + 1).map_err(|_| malformed())?);
    }
    match layout.hosts.is_empty() {
        true => Err(Error::Unavailable("the redis cluster keeps no slots yet".into())),
        false => Ok(layout),
    }
}

async fn keep_sentinel(shared: &Arc<Shared>, stop: &CancellationToken, sentinels: &[Host], master: &str) {
    let mut next = 0;
    let mut told = None;
    loop {
        let sentinel = &sentinels[next % sentinels.len()];
        if let Err(error) = follow(shared, stop, sentinel, master).await {
            tell_once(&mut told, error, "a sentinel does not say where the redis master is");
        }
        next += 1;
        // All of them were asked: a pause before they are asked again.
        let pause = if next % sentinels.len() == 0 { SENTINEL_EVERY } else { PAUSE };
        tokio::time::sleep(jittered(pause)).await;
    }
}

/// Stays with one sentinel as long as it answers: it is asked at every `+switch-master`, whenever a server fails, and
/// each second.
async fn follow(
    shared: &Arc<Shared>,
    stop: &CancellationToken,
    sentinel: &Host,
    master: &str,
) -> Result<(), Error> {
    let switched = shared.clone();
    let receive = move |push: PushInfo| {
        if push.kind == PushKind::Message {
            switched.refresh.notify_one();
        }
        Ok::<(), ::redis::aio::SendError>(())
    };
    let mut connection = shared.dialer.sentinel(sentinel, receive).await?;
    connection.subscribe("+switch-master").await.map_err(|error| error_of(&error))?;
    loop {
        let host = ask_sentinel(shared, &mut connection, master).await?;
        if shared.topology.load().servers.first().is_none_or(|server| server.host != host) {
            apply(shared, stop, &Layout { hosts: vec![host], slots: Vec::new() });
        }
        tokio::time::sleep(PAUSE).await;
        let _ = tokio::time::timeout(jittered(SENTINEL_EVERY), shared.refresh.notified()).await;
    }
}

async fn ask_sentinel(
    shared: &Shared,
    connection: &mut MultiplexedConnection,
    master: &str,
) -> Result<Host, Error> {
    shared.metrics.commands(Kind::Upkeep).inc();
    let mut cmd = ::redis::cmd("SENTINEL");
    cmd.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
    let answer: Option<(String, u16)> =
        cmd.query_async(connection).await.map_err(|error| error_of(&error))?;
    let (name, port) =
        answer.ok_or_else(|| Error::Refused(format!("the sentinel knows no master '{master}'")))?;
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
    fn slots_are_read_and_nonsense_is_refused() {
        let asked = Host { name: "asked".to_owned(), port: 1 };
        let good = [range(0, 100, "", 7), range(101, 16_383, "b", 8)];
        let layout = layout_of(&good, &asked).expect("layout");
        assert_eq!(layout.hosts[0], Host { name: "asked".to_owned(), port: 7 });
        assert_eq!((layout.slots[100], layout.slots[101]), (1, 2));
        for bad in [
            range(0, 16_384, "a", 1),
            range(-1, 2, "a", 1),
            range(5, 4, "a", 70_000),
            Value::Nil,
            Value::Array(vec![]),
        ] {
            assert!(layout_of(&[bad], &asked).is_err());
        }
        assert!(matches!(layout_of(&[], &asked), Err(Error::Unavailable(_))));
    }
}
