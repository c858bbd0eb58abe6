//! Sweeps: connected sessions are compared with the directory and with the store, to find what this node missed.
//!
//! | occasion | since | directory | revisions |
//! |---|---|---|---|
//! | messages may have been lost | the place before the loss | | compared |
//! | another node could not send | the place it names | | compared |
//! | a lease was gained | the place where the last one ended | every session registered again | compared |
//! | [`crate::cluster::Config::sweep_interval`] passed | the last sweep | | |
//! | [`crate::cluster::Config::audit_interval`] passed, or [`crate::cluster::Config::audit_soon`] after a loss | | every session registered again | |
//!
//! No sweep begins behind the place up to which the last one compared: a session that reads again counts everything up
//! to the last message of its pages as received.
//!
//! A session is registered in the directory before it is compared with the store: the store has what was committed
//! before, and a later commit finds the session. The shards know what they recently offered to their sessions, and skip
//! it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_cluster::{Epoch, Kept, Take};
use noroshi_store::{Place, Recheck, Rechecked, Recover};
use noroshi_types::{AppId, CloseReason, Message, Position, Topic, limits};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cluster::{Peers, place_history};
use crate::edge::{Edge, Fan, LocalSession, SESSION_PAGES};

/// Sessions in one request to the store or the directory.
const CHUNK: usize = 500;
/// The pause after a failure.
const PAUSE: Duration = Duration::from_secs(5);
/// The pause between two sweeps, in which requests of any number of nodes merge into one.
const INTERVAL_MIN: Duration = Duration::from_millis(500);
/// The pause while mailboxes are full.
const FULL: Duration = Duration::from_millis(10);
/// After this a session that began without the directory is in its shard.
const SETTLED: Duration = Duration::from_millis(500);
/// How long a node waits for a new lease after one lapsed, while Redis answers.
const REJOIN: Duration = Duration::from_secs(2);
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Rows of topic logs that one request for changed topics looks at.
const TOPIC_ROWS: usize = 10_000;
/// Positions of a topic that are read first, and the factor by which each further read goes back.
const BACK_FIRST: u64 = 128;
const BACK_TIMES: u64 = 8;

#[derive(Default)]
pub(crate) struct Sweeps {
    /// Guards only itself.
    requested: Mutex<Requested>,
    filled: Notify,
    /// Makes the audit compare all sessions with the directory soon.
    audit: Notify,
}

#[derive(Default)]
struct Requested {
    order: Option<Order>,
    /// The place where the last lease ended, until the next one is gained.
    left: Option<Place>,
}

#[derive(Debug, Clone, Copy)]
struct Order {
    since: Place,
    /// Whether changes of users, tokens and subscriptions may have been missed as well.
    revisions: bool,
    /// Register sessions of this and higher generations in the directory first.
    keep: Option<u64>,
}

impl Order {
    fn merge(self, other: Option<Order>) -> Self {
        let Some(other) = other else { return self };
        Self {
            since: self.since.min(other.since),
            revisions: self.revisions || other.revisions,
            keep: self.keep.into_iter().chain(other.keep).min(),
        }
    }
}

impl Sweeps {
    fn request(&self, order: Order) {
        let mut requested = self.requested.lock();
        requested.order = Some(order.merge(requested.order.take()));
        drop(requested);
        self.filled.notify_one();
    }

    /// Records behind `since` may have been lost, including those about replaced sessions.
    pub(crate) fn lost(&self, since: Place) {
        self.audit.notify_one();
        self.look(since);
    }

    /// The directory is right, but messages behind `since` may have been missed.
    fn look(&self, since: Place) {
        self.request(Order { since, revisions: true, keep: None });
    }

    /// The lease ended at `place`.
    pub(crate) fn left(&self, place: Place) {
        let mut requested = self.requested.lock();
        requested.left = Some(requested.left.map_or(place, |left| left.min(place)));
    }

    /// A lease was gained. A node that never had one before has missed nothing so far.
    pub(crate) fn joined(&self, present: Place) {
        let left = self.requested.lock().left.take();
        self.request(Order { since: left.unwrap_or(present), revisions: true, keep: Some(0) });
    }

    /// Sessions began that the directory does not know, none of them with a lower generation.
    pub(crate) fn unregistered(&self, present: Place, generation: u64) {
        self.request(Order { since: present, revisions: false, keep: Some(generation) });
    }

    fn take(&self) -> Option<Order> {
        self.requested.lock().order.take()
    }
}

/// The sweep is incomplete, and must be repeated.
struct Failed;

/// Sweeps on request and at intervals, until it is dropped.
pub(crate) async fn run(peers: &Arc<Peers>) {
    let mut last = peers.place_before(Instant::now());
    // The lease under which all sessions were registered in the directory.
    let mut kept = None;
    loop {
        let by_interval = tokio::time::timeout(peers.config.sweep_interval, peers.sweeps.filled.notified());
        let requested = by_interval.await.is_ok();
        let begun = peers.place_before(Instant::now());
        let order = match peers.sweeps.take() {
            Some(order) => order,
            None if requested || begun <= last => continue, // nothing was stored since
            None => Order { since: last, revisions: false, keep: None },
        };
        let epoch = lease(peers).await;
        let is_anew = epoch.is_some() && epoch != kept;
        if order.keep.is_some_and(|lowest| lowest > 0) {
            tokio::time::sleep(SETTLED).await;
        }
        let since = order.since.min(last);
        let order = Order { since, keep: if is_anew { Some(0) } else { order.keep }, ..order };
        let started = Instant::now();
        let swept = sweep(peers, order).await;
        tracing::debug!(
            since = order.since.0,
            revisions = order.revisions,
            keep = order.keep,
            is_registered = epoch.is_some(),
            done = swept.is_ok(),
            took_ms = started.elapsed().as_millis() as u64,
            "sessions were compared with the store"
        );
        if order.keep == Some(0) && swept.is_ok() {
            kept = epoch;
        }
        tokio::time::sleep(INTERVAL_MIN).await;
        match swept {
            Ok(()) => last = begun,
            Err(Failed) => {
                tokio::time::sleep(PAUSE).await;
                peers.sweeps.request(order);
            }
        }
        if order.keep.is_some() {
            let (runtime, peers) = (peers.context.runtime.clone(), peers.clone());
            runtime.spawn(async move {
                tokio::time::sleep(peers.config.known_after).await;
                peers.sweeps.look(order.since);
            });
        }
    }
}

/// The lease of this node. A node that was suspended first finds that its lease is over. It learns under the next lease
/// which of its devices moved to other nodes, and delivers nothing to them until then. `None`: Redis is gone.
async fn lease(peers: &Peers) -> Option<Epoch> {
    let began = Instant::now();
    loop {
        let epoch = peers.cluster.members.epoch();
        if epoch.is_some() || began.elapsed() > REJOIN {
            return epoch;
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

async fn sweep(peers: &Peers, order: Order) -> Result<(), Failed> {
    let Some(edge) = peers.context.edge() else { return Ok(()) };
    peers.metrics.sweeps.inc();
    let mut kept = Ok(());
    for page in 0..SESSION_PAGES {
        for sessions in edge.sessions_page(page).chunks(CHUNK) {
            // The next lease causes another sweep. If the directory does not answer, the sessions are still compared
            // with the store.
            if let Some(lowest) = order.keep.filter(|_| kept.is_ok())
                && let Some(epoch) = peers.cluster.members.epoch()
            {
                let wanted = |session: &&LocalSession| session.generation >= lowest;
                let wanted: Vec<LocalSession> = sessions.iter().filter(wanted).cloned().collect();
                kept = keep(peers, &**edge, epoch, &wanted).await;
            }
            recheck(peers, &**edge, sessions, order).await?;
        }
    }
    offer_topics(peers, &**edge, order.since).await?;
    kept
}

/// Compares all sessions with the directory, page by page, until it is dropped.
pub(crate) async fn audit(peers: &Peers) {
    let pages = u32::try_from(SESSION_PAGES).unwrap_or(u32::MAX);
    // Pages left in a faster round. It is still slow: a loss affects many nodes at once, perhaps because Redis is
    // overloaded.
    let mut soon = 0;
    for page in (0..SESSION_PAGES).cycle() {
        match soon {
            0 => tokio::select! {
                () = tokio::time::sleep(peers.config.audit_interval / pages) => {}
                () = peers.sweeps.audit.notified() => soon = SESSION_PAGES - 1,
            },
            _ => {
                tokio::time::sleep(peers.config.audit_soon / pages).await;
                soon -= 1;
            }
        }
        let (Some(edge), Some(epoch)) = (peers.context.edge(), peers.cluster.members.epoch()) else {
            continue;
        };
        for sessions in edge.sessions_page(page).chunks(CHUNK) {
            if keep(peers, &**edge, epoch, sessions).await.is_err() {
                break; // until the next round, or the next lease
            }
        }
    }
}

/// Registers sessions in the directory, at a bounded rate. Ends sessions of which another node has a newer one.
async fn keep(peers: &Peers, edge: &dyn Edge, epoch: Epoch, sessions: &[LocalSession]) -> Result<(), Failed> {
    if sessions.is_empty() {
        return Ok(());
    }
    let take = |session: &LocalSession| Take {
        device: session.device_key,
        user: session.user_key,
        generation: session.generation,
    };
    let kept = peers.cluster.directory.keep(epoch, sessions.iter().map(take).collect()).await;
    let kept = match kept {
        Ok(kept) => kept,
        // The next lease registers all sessions again.
        Err(noroshi_cluster::Error::Lost) => return Ok(()),
        Err(error) => {
            tracing::debug!(%error, "could not register sessions in the directory; retrying");
            return Err(Failed);
        }
    };
    peers.metrics.kept_sessions.inc_by(sessions.len() as u64);
    for (session, kept) in sessions.iter().zip(kept) {
        if kept == Kept::Superseded {
            peers.metrics.superseded_sessions.inc();
            edge.replaced(session.app, &session.device, session.generation + 1);
        }
    }
    // All gateways may be doing the same now, and share what Redis can take.
    let gateways = 1 + peers.other_gateways().len();
    let each = f64::from(peers.config.keep_per_second.max(1)) / gateways as f64;
    tokio::time::sleep(Duration::from_secs_f64(sessions.len() as f64 / each)).await;
    Ok(())
}

/// Compares sessions with the store.
async fn recheck(
    peers: &Peers,
    edge: &dyn Edge,
    sessions: &[LocalSession],
    order: Order,
) -> Result<(), Failed> {
    let check = |session: &LocalSession| Recheck {
        device: session.num,
        revision: session.revision.filter(|_| order.revisions),
        since: order.since,
    };
    let checked = peers.context.store.recheck(sessions.iter().map(check).collect()).await;
    let checked = checked.map_err(|error| {
        tracing::warn!(%error, "could not compare sessions with the store; retrying");
        Failed
    })?;
    peers.metrics.rechecked_devices.inc_by(sessions.len() as u64);
    let mut newer = Vec::new();
    for (session, checked) in sessions.iter().zip(checked) {
        match checked {
            Rechecked::Same => {}
            Rechecked::Newer => newer.push(session.clone()),
            Rechecked::Changed => {
                // Its next login reads the new state, or is refused.
                peers.metrics.reconnected_devices.inc();
                edge.close(session.app, &session.device, CloseReason::Drain);
            }
        }
    }
    if !newer.is_empty() {
        tracing::debug!(
            since = order.since.0,
            sessions = newer.len(),
            "sessions have newer messages in the store"
        );
        peers.metrics.reread_devices.inc_by(newer.len() as u64);
        edge.reread(&newer, place_history::id_at(order.since));
    }
    Ok(())
}

/// Offers new messages of topics to the subscribers on this node that were not offered them.
async fn offer_topics(peers: &Peers, edge: &dyn Edge, since: Place) -> Result<(), Failed> {
    let failed = |error| {
        tracing::warn!(%error, "could not compare topics with the store; retrying");
        Failed
    };
    // Only topics with subscribers here, each once: two pages may name the same topic.
    let mut offered = HashSet::new();
    let mut next = Some(since);
    while let Some(from) = next {
        let page = peers.context.store.topics_since(from, TOPIC_ROWS).await.map_err(failed)?;
        next = page.next;
        for (app, topic) in page.topics {
            if edge.topic_sessions(app, &topic) == 0 || !offered.insert((app, topic.clone())) {
                continue;
            }
            let missed = missed(peers, app, &topic, since).await.map_err(failed)?;
            offer(peers, edge, &topic, missed).await;
        }
    }
    Ok(())
}

/// Offers messages of a topic as fast as the mailboxes accept them.
pub(super) async fn offer(peers: &Peers, edge: &dyn Edge, topic: &Topic, messages: Vec<Arc<Message>>) {
    for message in messages {
        while !edge.has_room(Fan::Topic, 0, limits::PUBLISH_DELAY_MAX) {
            tokio::time::sleep(FULL).await;
        }
        peers.metrics.offered_again.inc();
        edge.offer(message, topic);
    }
}

/// The messages of a topic's log behind `since`, read backwards from the end of the log.
async fn missed(
    peers: &Peers,
    app: AppId,
    topic: &Topic,
    since: Place,
) -> Result<Vec<Arc<Message>>, noroshi_store::Error> {
    let (store, now) = (&peers.context.store, peers.context.now());
    let end = Recover { app, topic: topic.clone(), since: None, retained: false, now };
    let end = store.recover(end).await?;
    let Some(end) = end.heads.into_iter().next().map(|head| head.position) else { return Ok(Vec::new()) };
    let (limit, mut back) = (place_history::id_at(since), BACK_FIRST);
    loop {
        let first = Position { offset: end.offset.saturating_sub(back), ..end };
        let (mut found, _) = behind(peers, app, topic, first).await?;
        if first.offset == 0 || found.first().is_some_and(|message| message.id <= limit) {
            found.retain(|message| message.id > limit);
            return Ok(found);
        }
        back = back.saturating_mul(BACK_TIMES);
    }
}

/// The messages of a topic's log behind a position, and the position up to which they are complete.
pub(super) async fn behind(
    peers: &Peers,
    app: AppId,
    topic: &Topic,
    mut from: Position,
) -> Result<(Vec<Arc<Message>>, Option<Position>), noroshi_store::Error> {
    let mut found = Vec::new();
    loop {
        let (topic, now) = (topic.clone(), peers.context.now());
        let page = peers
            .context
            .store
            .recover(Recover { app, topic, since: Some(from), retained: false, now })
            .await?;
        let last = page.messages.last().and_then(|message| message.topic.as_ref());
        let next = last.map(|place| place.position).filter(|_| page.more);
        found.extend(page.messages);
        match next {
            Some(next) => from = next,
            None => return Ok((found, page.heads.into_iter().next().map(|head| head.position))),
        }
    }
}
