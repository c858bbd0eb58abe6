//! The queue of push batches as Redis streams: one per lane, with one consumer group for all senders.
//!
//! ```text
//!   put  ─ XADD ─► stream of the lane ─ XREADGROUP ─► pulled by one consumer ─ XACK, XDEL ─► gone
//!                                                         └─ idle for CLAIM_AFTER: XAUTOCLAIM by any other
//! ```
//!
//! Streams have no length limit: finished entries are trimmed (`upkeep`), and the dispatcher limits the number of
//! queued ones. After Redis lost its data there is no group; the next pull creates it and reads from the beginning.
//! Waiting for queued batches needs a separate connection, because a blocking command delays all commands after it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ::redis::aio::MultiplexedConnection;
use ::redis::streams::{
    StreamAutoClaimReply, StreamId, StreamInfoConsumersReply, StreamInfoGroupsReply, StreamPendingCountReply,
    StreamReadReply,
};
use ::redis::{Cmd, FromRedisValue, Value, cmd};
use async_trait::async_trait;
use bytes::Bytes;
use noroshi_types::Lane;
use parking_lot::Mutex;

use super::address::Host;
use super::connections::Connections;
use super::dial::{answered, error_of};
use super::slot::{Command, slot};
use crate::Error;
use crate::batches::{BatchQueue, CLAIM_AFTER, LaneDepth, QueuedBatch, Receipt, Received};
use crate::metrics::Kind;
use crate::random;

/// The consumer group of all senders.
const GROUP: &str = "senders";

/// One wait of XREADGROUP; a longer wait is several of them.
const BLOCK_MAX: Duration = Duration::from_secs(5);

/// The response timeout of a blocking command, added to its wait.
const ANSWER: Duration = Duration::from_secs(1);

/// How often finished entries are trimmed and consumers of ended processes are deleted.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(600);

/// A consumer that was idle for this long belongs to an ended process: a live one reads every few seconds.
const CONSUMER_IDLE: Duration = Duration::from_secs(3_600);

/// Entries per command.
const IDS_MAX: usize = 512;

/// Entries of one consumer read to extend them: more than a sender ever has in progress.
const PENDING_MAX: usize = 20_000;

/// A client of the queue that pulls and puts.
pub struct Batches {
    connections: Connections,
    lanes: Vec<Stream>,
    slot: u16,
    consumer: String,
    claim_after: Duration,
    /// The connection between two pulls; a dropped pull drops its connection too, so that nothing waits behind its
    /// command. The lock guards only this field.
    blocking: Mutex<Option<(Host, MultiplexedConnection)>>,
    /// The lock guards only this field.
    state: Mutex<State>,
}

struct Stream {
    lane: u8,
    key: String,
}

struct State {
    /// Queued batches of a read over several lanes that returned more than requested.
    surplus: VecDeque<(Received, Instant)>,
    /// Where the search for abandoned entries continues, by lane.
    cursors: Vec<String>,
    claimed_at: Option<Instant>,
    kept_up_at: Instant,
}

impl Batches {
    pub(super) fn new(connections: Connections, prefix: &str) -> Self {
        // One hash tag: a single read waits for all lanes.
        let stem = format!("{{{prefix}:push}}");
        let lanes: Vec<Stream> = Lane::ALL
            .into_iter()
            .map(|lane| Stream { lane: lane as u8, key: format!("{stem}:{}", lane.as_str()) })
            .collect();
        let name = random::epoch().map_or_else(|_| u64::from(std::process::id()), |epoch| epoch.0);
        let state = State {
            surplus: VecDeque::new(),
            cursors: vec!["0-0".to_owned(); lanes.len()],
            claimed_at: None,
            kept_up_at: Instant::now(),
        };
        Self {
            connections,
            slot: slot(stem.as_bytes()),
            lanes,
            consumer: format!("{name:016x}"),
            claim_after: CLAIM_AFTER,
            blocking: Mutex::new(None),
            state: Mutex::new(state),
        }
    }

    /// Replaces [`CLAIM_AFTER`]; must be the same at all pullers.
    pub fn with_claim_after(self, claim_after: Duration) -> Self {
        Self { claim_after, ..self }
    }

    fn stream(&self, lane: u8) -> Result<&Stream, Error> {
        let stream = self.lanes.iter().find(|stream| stream.lane == lane);
        stream.ok_or_else(|| Error::Refused(format!("unknown lane {lane}")))
    }

    /// Sends a command, which its builder leaves behind empty.
    async fn one(&self, cmd: &mut Cmd) -> Result<Value, Error> {
        self.connections.one(Kind::Batches, self.slot, std::mem::replace(cmd, Cmd::new())).await
    }

    /// All in one round trip; returns the first error.
    async fn all(&self, cmds: Vec<Cmd>) -> Result<Vec<Value>, Error> {
        if cmds.is_empty() {
            return Ok(Vec::new());
        }
        let commands = cmds.into_iter().map(|cmd| Command { slot: self.slot, cmd }).collect();
        self.connections.run_all(Kind::Batches, commands).await.into_iter().collect()
    }

    /// Creates the group if it is missing: initially, and after a loss of data.
    async fn make_groups(&self) -> Result<(), Error> {
        for stream in &self.lanes {
            let mut create = cmd("XGROUP");
            // From the beginning ("0"), to include batches that were put earlier.
            match self.one(create.arg("CREATE").arg(&stream.key).arg(GROUP).arg("0").arg("MKSTREAM")).await {
                Err(Error::Refused(why)) if why.starts_with("BUSYGROUP") => {}
                result => drop(result?),
            }
        }
        tracing::debug!("created the consumer group of push batches");
        Ok(())
    }

    /// Entries that consumers abandoned; checked several times per [`CLAIM_AFTER`].
    async fn claim(&self, lanes: &[u8], max: usize) -> Result<Vec<Received>, Error> {
        let due = |at: Option<Instant>| at.is_none_or(|at| at.elapsed() >= self.claim_after / 6);
        if !due(self.state.lock().claimed_at) {
            return Ok(Vec::new());
        }
        let mut received: Vec<Received> = Vec::new();
        for (index, stream) in
            self.lanes.iter().enumerate().filter(|(_, stream)| lanes.contains(&stream.lane))
        {
            if received.len() >= max {
                break;
            }
            let cursor = self.state.lock().cursors[index].clone();
            let mut claim = cmd("XAUTOCLAIM");
            claim.arg(&stream.key).arg(GROUP).arg(&self.consumer).arg(millis(self.claim_after)).arg(cursor);
            let reply = self.one(claim.arg("COUNT").arg(max - received.len())).await?;
            let reply: StreamAutoClaimReply = read(reply)?;
            self.state.lock().cursors[index] = reply.next_stream_id;
            let deliveries = self.deliveries(stream, &reply.claimed).await?;
            for (entry, deliveries) in reply.claimed.into_iter().zip(deliveries) {
                received.extend(received_of(stream.lane, entry, deliveries));
            }
        }
        if received.len() < max {
            self.state.lock().claimed_at = Some(Instant::now());
        }
        Ok(received)
    }

    /// How often entries were pulled: XAUTOCLAIM counts it but does not report it.
    async fn deliveries(&self, stream: &Stream, entries: &[StreamId]) -> Result<Vec<u32>, Error> {
        let ask = |entry: &StreamId| {
            let mut pending = cmd("XPENDING");
            pending.arg(&stream.key).arg(GROUP).arg(&entry.id).arg(&entry.id).arg(1);
            pending
        };
        let answers = self.all(entries.iter().map(ask).collect()).await?;
        let count = |answer| -> Result<u32, Error> {
            let reply: StreamPendingCountReply = read(answer)?;
            let times = reply.ids.first().map_or(1, |pending| pending.times_delivered);
            Ok(u32::try_from(times).unwrap_or(u32::MAX))
        };
        answers.into_iter().map(count).collect()
    }

    /// New entries, lane by lane.
    async fn read_new(&self, lanes: &[u8], max: usize) -> Result<Vec<Received>, Error> {
        let mut received = Vec::new();
        for lane in lanes {
            let left = max - received.len();
            if left == 0 {
                break;
            }
            let reply = read(self.one(&mut self.read_group(&[*lane], left, None)?).await?)?;
            received.extend(self.received(reply));
        }
        Ok(received)
    }

    /// Waits for the first entry of any lane.
    async fn wait(&self, lanes: &[u8], max: usize, wait: Duration) -> Result<Vec<Received>, Error> {
        let wait = wait.clamp(Duration::from_millis(1), BLOCK_MAX);
        let read_group = self.read_group(lanes, (max / lanes.len().max(1)).max(1), Some(wait))?;
        let host = self.connections.host(self.slot)?;
        let kept = self.blocking.lock().take().filter(|(known, _)| *known == host);
        let mut connection = match kept {
            Some((_, connection)) => connection,
            None => self.connections.blocking(self.slot, BLOCK_MAX + ANSWER).await?,
        };
        let answer = tokio::time::timeout(wait + ANSWER, connection.send_packed_command(&read_group)).await;
        let answer = match answer {
            Ok(answer) => answer.map_err(|error| error_of(&error))?,
            Err(_) => return Err(Error::Unavailable("no answer about a stream in time".into())),
        };
        // An error of the server leaves the connection usable.
        *self.blocking.lock() = Some((host, connection));
        if let Value::ServerError(error) = &answer {
            return Err(answered(error));
        }
        Ok(self.received(read(answer)?))
    }

    fn read_group(&self, lanes: &[u8], count: usize, block: Option<Duration>) -> Result<Cmd, Error> {
        let mut read_group = cmd("XREADGROUP");
        read_group.arg("GROUP").arg(GROUP).arg(&self.consumer).arg("COUNT").arg(count);
        if let Some(block) = block {
            read_group.arg("BLOCK").arg(millis(block));
        }
        read_group.arg("STREAMS");
        for lane in lanes {
            read_group.arg(&self.stream(*lane)?.key);
        }
        for _ in lanes {
            read_group.arg(">");
        }
        Ok(read_group)
    }

    fn received(&self, reply: Option<StreamReadReply>) -> Vec<Received> {
        let mut received = Vec::new();
        for key in reply.unwrap_or_default().keys {
            let Some(stream) = self.lanes.iter().find(|stream| stream.key == key.key) else { continue };
            received.extend(key.ids.into_iter().filter_map(|entry| received_of(stream.lane, entry, 1)));
        }
        received
    }

    async fn pull_once(&self, lanes: &[u8], max: usize, wait: Duration) -> Result<Vec<Received>, Error> {
        let mut received = self.take_surplus(lanes, max);
        received.extend(self.claim(lanes, max - received.len()).await?);
        received.extend(self.read_new(lanes, max - received.len()).await?);
        if !received.is_empty() || wait.is_zero() {
            return Ok(received);
        }
        let mut waited = self.wait(lanes, max, wait).await?;
        if waited.len() > max {
            let surplus = waited.split_off(max);
            let now = Instant::now();
            self.state.lock().surplus.extend(surplus.into_iter().map(|one| (one, now)));
        }
        Ok(waited)
    }

    /// Queued batches pulled so long ago that others may have claimed them are skipped.
    fn take_surplus(&self, lanes: &[u8], max: usize) -> Vec<Received> {
        let mut state = self.state.lock();
        let mut taken = Vec::new();
        for (one, at) in std::mem::take(&mut state.surplus) {
            match (
                at.elapsed() < self.claim_after / 2,
                lanes.contains(&one.receipt.lane) && taken.len() < max,
            ) {
                (false, _) => {}
                (true, true) => taken.push(one),
                (true, false) => state.surplus.push_back((one, at)),
            }
        }
        taken
    }

    /// Trims finished entries that were not deleted, and deletes consumers that ended without pending entries.
    async fn upkeep(&self) -> Result<(), Error> {
        {
            let mut state = self.state.lock();
            if state.kept_up_at.elapsed() < UPKEEP_INTERVAL {
                return Ok(());
            }
            state.kept_up_at = Instant::now();
        }
        for stream in &self.lanes {
            let consumers = self.one(cmd("XINFO").arg("CONSUMERS").arg(&stream.key).arg(GROUP)).await?;
            let consumers: StreamInfoConsumersReply = read(consumers)?;
            let idle = CONSUMER_IDLE.as_millis();
            let ended =
                consumers.consumers.into_iter().filter(|one| one.pending == 0 && one.idle as u128 > idle);
            for consumer in ended {
                let mut delete = cmd("XGROUP");
                self.one(delete.arg("DELCONSUMER").arg(&stream.key).arg(GROUP).arg(consumer.name)).await?;
            }
            let mut oldest = cmd("XPENDING");
            let oldest = self.one(oldest.arg(&stream.key).arg(GROUP).arg("-").arg("+").arg(1)).await?;
            let oldest: StreamPendingCountReply = read(oldest)?;
            let delivered = self.group(stream).await?.map(|group| group.last_delivered_id);
            // Everything before the oldest pulled entry, or else before the last pulled one, is finished.
            let done = oldest.ids.into_iter().next().map(|pending| pending.id).or(delivered);
            if let Some(done) = done {
                self.one(cmd("XTRIM").arg(&stream.key).arg("MINID").arg(done)).await?;
            }
        }
        Ok(())
    }

    async fn group(&self, stream: &Stream) -> Result<Option<::redis::streams::StreamInfoGroup>, Error> {
        match self.one(cmd("XINFO").arg("GROUPS").arg(&stream.key)).await {
            Ok(answer) => {
                let groups: StreamInfoGroupsReply = read(answer)?;
                Ok(groups.groups.into_iter().find(|group| group.name == GROUP))
            }
            // The stream does not exist.
            Err(Error::Refused(why)) if why.contains("no such key") => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn read<T: FromRedisValue>(answer: Value) -> Result<T, Error> {
    ::redis::from_redis_value(answer)
        .map_err(|error| Error::Refused(format!("invalid answer about streams: {error}")))
}

/// None: the entry was deleted, or is not ours.
fn received_of(lane: u8, mut entry: StreamId, deliveries: u32) -> Option<Received> {
    let key = ::redis::from_redis_value(entry.map.remove("k")?).ok()?;
    let body: Vec<u8> = ::redis::from_redis_value(entry.map.remove("b")?).ok()?;
    let parcel = QueuedBatch { key, lane, body: Bytes::from(body) };
    let receipt = Receipt { lane, handle: entry.id.into() };
    Some(Received { parcel, receipt, deliveries })
}

/// The group is missing: the streams are new, or were lost.
fn lacks_group(error: &Error) -> bool {
    matches!(error, Error::Refused(why) if why.starts_with("NOGROUP"))
}

#[async_trait]
impl BatchQueue for Batches {
    async fn put(&self, parcels: Vec<QueuedBatch>) -> Result<(), Error> {
        for some in parcels.chunks(IDS_MAX) {
            let mut cmds = Vec::with_capacity(some.len());
            for parcel in some {
                let mut add = cmd("XADD");
                add.arg(&self.stream(parcel.lane)?.key).arg("*");
                add.arg("k").arg(parcel.key).arg("b").arg(&parcel.body[..]);
                cmds.push(add);
            }
            self.all(cmds).await?;
        }
        Ok(())
    }

    async fn pull(&self, lanes: &[u8], max: usize, wait: Duration) -> Result<Vec<Received>, Error> {
        if lanes.is_empty() || max == 0 {
            return Ok(Vec::new());
        }
        let pulled = match self.pull_once(lanes, max, wait).await {
            Err(error) if lacks_group(&error) => {
                self.make_groups().await?;
                self.pull_once(lanes, max, wait).await
            }
            pulled => pulled,
        }?;
        if let Err(error) = self.upkeep().await {
            tracing::debug!(%error, "failed to trim the streams of push batches");
        }
        Ok(pulled)
    }

    async fn extend(&self, receipts: &[Receipt], time: Duration) -> Result<(), Error> {
        let idle = self.claim_after.saturating_sub(time);
        for stream in &self.lanes {
            let asked: Vec<&str> =
                receipts.iter().filter(|one| one.lane == stream.lane).map(|one| &*one.handle).collect();
            if asked.is_empty() {
                continue;
            }
            let mut pending = cmd("XPENDING");
            pending.arg(&stream.key).arg(GROUP).arg("-").arg("+").arg(PENDING_MAX).arg(&self.consumer);
            let ours: StreamPendingCountReply = match self.one(&mut pending).await {
                Err(error) if lacks_group(&error) => continue,
                answer => read(answer?)?,
            };
            // Entries that another consumer claimed meanwhile are left to it.
            let ours: std::collections::HashSet<String> = ours.ids.into_iter().map(|one| one.id).collect();
            let asked: Vec<&str> = asked.into_iter().filter(|id| ours.contains(*id)).collect();
            let mut cmds = Vec::new();
            for some in asked.chunks(IDS_MAX) {
                let mut claim = cmd("XCLAIM");
                claim.arg(&stream.key).arg(GROUP).arg(&self.consumer).arg(0).arg(some);
                claim.arg("IDLE").arg(millis(idle)).arg("JUSTID");
                cmds.push(claim);
            }
            self.all(cmds).await?;
        }
        Ok(())
    }

    async fn done(&self, receipts: Vec<Receipt>) -> Result<(), Error> {
        let mut cmds = Vec::new();
        for stream in &self.lanes {
            let done: Vec<&str> =
                receipts.iter().filter(|one| one.lane == stream.lane).map(|one| &*one.handle).collect();
            for some in done.chunks(IDS_MAX) {
                let (mut ack, mut delete) = (cmd("XACK"), cmd("XDEL"));
                ack.arg(&stream.key).arg(GROUP).arg(some);
                delete.arg(&stream.key).arg(some);
                cmds.extend([ack, delete]);
            }
        }
        self.all(cmds).await.map(drop)
    }

    async fn depth(&self) -> Result<Vec<LaneDepth>, Error> {
        let mut depths = Vec::with_capacity(self.lanes.len());
        for stream in &self.lanes {
            let length: u64 = read(self.one(cmd("XLEN").arg(&stream.key)).await?)?;
            if length == 0 {
                depths.push(LaneDepth { lane: stream.lane, parcels: 0, pulled: 0 });
                continue;
            }
            let group = self.group(stream).await?;
            // Finished entries that were not deleted do not count: the group knows what it has not delivered.
            let pulled = group.as_ref().map_or(0, |group| group.pending as u64);
            let lag = group.and_then(|group| group.lag).map(|lag| lag as u64);
            let waiting = lag.unwrap_or(length.saturating_sub(pulled));
            depths.push(LaneDepth { lane: stream.lane, parcels: pulled + waiting, pulled });
        }
        Ok(depths)
    }
}
