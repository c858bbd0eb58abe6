//! Making good what this node was not told: sessions are compared with the directory and with the store.
//!
//! | occasion | since | directory | revisions |
//! |---|---|---|---|
//! | messages may have been lost | the place before the loss | | compared |
//! | another node could not tell | the place it names | | compared |
//! | a lease was gained | the place where the last one ended | every session put in again | compared |
//! | [`crate::cluster::Config::sweep_interval`] passed | the last sweep | | |
//! | [`crate::cluster::Config::audit_interval`] passed, or [`crate::cluster::Config::audit_soon`] after a loss | | every session put in again | |
//!
//! A session is put into the directory before it is compared with the store: what was committed before is
//! found in the store, and whoever commits later finds the session. The shards know what they offered their
//! sessions lately and leave it out.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_cluster::{Epoch, Kept, Take};
use noroshi_store::{Place, Recheck, Rechecked, Recover};
use noroshi_types::{AppId, CloseReason, Message, Position, Target, Topic};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cluster::{Peers, place};
use crate::delivery::Delivery;
use crate::edge::{Edge, LocalSession, SESSION_PAGES};

/// Sessions in one question to the store or the directory.
const CHUNK: usize = 500;
/// After a failure.
const PAUSE: Duration = Duration::from_secs(5);
/// Between two sweeps: what is asked for meanwhile is one, however many nodes ask.
const BREATH: Duration = Duration::from_millis(500);
/// While connections have as much before them as they take.
const FULL: Duration = Duration::from_millis(10);
/// A session that began without the directory stands in its shard by then.
const SETTLED: Duration = Duration::from_millis(500);
/// How long a lease that lapsed may take to be followed by another, where the engine answers.
const REJOIN: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);
/// Rows of topics' logs in one question: which topics they are of.
const TOPIC_ROWS: usize = 10_000;
/// Positions of a topic looked at first, and how much further back each time.
const BACK_FIRST: u64 = 128;
const BACK_TIMES: u64 = 8;

#[derive(Default)]
pub(crate) struct Sweeps {
    /// Guards what is wanted only.
    wanted: Mutex<Wanted>,
    asked: Notify,
    /// All sessions are to be compared with the directory soon.
    audit: Notify,
}

#[derive(Default)]
struct Wanted {
    order: Option<Order>,
    /// Where the lease ended that is not gained again yet.
    left: Option<Place>,
}

#[derive(Debug, Clone, Copy)]
struct Order {
    since: Place,
    /// Whether users, tokens and subscriptions may have changed unheard too.
    revisions: bool,
    /// Put sessions of this and higher generations into the directory first.
    keep: Option<u64>,
}

impl Order {
    fn and(self, other: Option<Order>) -> Self {
        let Some(other) = other else { return self };
        Self {
            since: self.since.min(other.since),
            revisions: self.revisions || other.revisions,
            keep: self.keep.into_iter().chain(other.keep).min(),
        }
    }
}

impl Sweeps {
    fn ask(&self, order: Order) {
        let mut wanted = self.wanted.lock();
        wanted.order = Some(order.and(wanted.order.take()));
        drop(wanted);
        self.asked.notify_one();
    }

    /// What stands behind `since` may not have been told. That includes which sessions were replaced.
    pub(crate) fn lost(&self, since: Place) {
        self.audit.notify_one();
        self.look(since);
    }

    /// The directory is right, what stands behind `since` may not have come by.
    fn look(&self, since: Place) {
        self.ask(Order { since, revisions: true, keep: None });
    }

    pub(crate) fn left(&self, place: Place) {
        let mut wanted = self.wanted.lock();
        wanted.left = Some(wanted.left.map_or(place, |left| left.min(place)));
    }

    /// A lease was gained. Where this node never had one, nothing was missed before the present.
    pub(crate) fn joined(&self, present: Place) {
        let left = self.wanted.lock().left.take();
        self.ask(Order { since: left.unwrap_or(present), revisions: true, keep: Some(0) });
    }

    /// Sessions began that the directory does not know, none of them with a lower generation.
    pub(crate) fn unregistered(&self, present: Place, generation: u64) {
        self.ask(Order { since: present, revisions: false, keep: Some(generation) });
    }

    fn take(&self) -> Option<Order> {
        self.wanted.lock().order.take()
    }
}

/// Why a sweep was not finished: it is to be done again.
struct Failed;

/// Sweeps when asked and from time to time, until it is dropped.
pub(crate) async fn run(delivery: &Arc<Delivery>, peers: &Arc<Peers>) {
    let mut last = peers.places.before(Instant::now(), delivery.clock.now());
    // Under which lease all sessions were put into the directory.
    let mut kept = None;
    loop {
        let by_interval = tokio::time::timeout(peers.config.sweep_interval, peers.sweeps.asked.notified());
        let asked = by_interval.await.is_ok();
        let begun = peers.places.before(Instant::now(), delivery.clock.now());
        let order = match peers.sweeps.take() {
            Some(order) => order,
            None if asked || begun <= last => continue, // or nothing was kept since
            None => Order { since: last, revisions: false, keep: None },
        };
        let epoch = lease(peers).await;
        let is_anew = epoch.is_some() && epoch != kept;
        if order.keep.is_some_and(|lowest| lowest > 0) {
            tokio::time::sleep(SETTLED).await;
        }
        let order = Order { keep: if is_anew { Some(0) } else { order.keep }, ..order };
        let swept = sweep(delivery, peers, order).await;
        if order.keep == Some(0) && swept.is_ok() {
            kept = epoch;
        }
        tokio::time::sleep(BREATH).await;
        match swept {
            Ok(()) if order.since <= last => last = begun,
            Ok(()) => {}
            Err(Failed) => {
                tokio::time::sleep(PAUSE).await;
                peers.sweeps.ask(order);
            }
        }
        if order.keep.is_some() {
            let peers = peers.clone();
            delivery.runtime.spawn(async move {
                tokio::time::sleep(peers.config.known_after).await;
                peers.sweeps.look(order.since);
            });
        }
    }
}

/// The lease this node has. One that stood still finds first that its lease is over; which of its devices went
/// elsewhere meanwhile it learns under the next, and until then it brings them nothing. None: the engine is gone.
async fn lease(peers: &Peers) -> Option<Epoch> {
    let began = Instant::now();
    loop {
        let epoch = peers.cluster.members.epoch();
        if epoch.is_some() || began.elapsed() > REJOIN {
            return epoch;
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn sweep(delivery: &Delivery, peers: &Peers, order: Order) -> Result<(), Failed> {
    let Some(edge) = delivery.edge() else { return Ok(()) };
    peers.metrics.sweeps.inc();
    let mut kept = Ok(());
    for page in 0..SESSION_PAGES {
        for sessions in edge.sessions_page(page).chunks(CHUNK) {
            // Without a lease there will be another one, and then a sweep. Where the directory does not
            // answer the store still does: what it has is brought all the same.
            if let Some(lowest) = order.keep.filter(|_| kept.is_ok())
                && let Some(epoch) = peers.cluster.members.epoch()
            {
                let wanted = |session: &&LocalSession| session.generation >= lowest;
                let wanted: Vec<LocalSession> = sessions.iter().filter(wanted).cloned().collect();
                kept = keep(peers, &**edge, epoch, &wanted).await;
            }
            recheck(delivery, peers, &**edge, sessions, order).await?;
        }
    }
    offer_topics(delivery, peers, &**edge, order.since).await?;
    kept
}

/// Compares all sessions with the directory, a page after the other, until it is dropped.
pub(crate) async fn audit(delivery: &Arc<Delivery>, peers: &Arc<Peers>) {
    let pages = u32::try_from(SESSION_PAGES).unwrap_or(u32::MAX);
    // Pages that are looked at sooner. What was lost was lost to many nodes at once, and maybe because the engine has
    // too much to do already.
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
        let (Some(edge), Some(epoch)) = (delivery.edge(), peers.cluster.members.epoch()) else { continue };
        for sessions in edge.sessions_page(page).chunks(CHUNK) {
            if keep(peers, &**edge, epoch, sessions).await.is_err() {
                break; // the next round, or the next lease
            }
        }
    }
}

/// Puts sessions into the directory, at a bounded rate; those that another node has newer ones of end.
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
        // The next lease begins anew.
        Err(noroshi_cluster::Error::Lost) => return Ok(()),
        Err(error) => {
            tracing::debug!(%error, "sessions could not be put into the directory; trying again");
            return Err(Failed);
        }
    };
    peers.metrics.kept.inc_by(sessions.len() as u64);
    for (session, kept) in sessions.iter().zip(kept) {
        if kept == Kept::Superseded {
            peers.metrics.superseded.inc();
            edge.replaced(session.app, &session.device, session.generation + 1);
        }
    }
    // What one engine takes is shared by all who may be doing the same now.
    let gateways = 1 + peers.other_gateways().len();
    let each = f64::from(peers.config.keep_per_second.max(1)) / gateways as f64;
    tokio::time::sleep(Duration::from_secs_f64(sessions.len() as f64 / each)).await;
    Ok(())
}

/// Compares sessions with the store.
async fn recheck(
    delivery: &Delivery,
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
    let checked = delivery.store.recheck(sessions.iter().map(check).collect()).await.map_err(|error| {
        tracing::warn!(%error, "sessions could not be compared with the store; trying again");
        Failed
    })?;
    peers.metrics.rechecked.inc_by(sessions.len() as u64);
    let mut newer = Vec::new();
    for (session, checked) in sessions.iter().zip(checked) {
        match checked {
            Rechecked::Same => {}
            Rechecked::Newer => newer.push(session.clone()),
            Rechecked::Changed => {
                // Its next log-in finds out what it is now, and whether it is welcome.
                peers.metrics.reconnected.inc();
                edge.close(session.app, &session.device, CloseReason::Drain);
            }
        }
    }
    if !newer.is_empty() {
        peers.metrics.reread.inc_by(newer.len() as u64);
        edge.reread(&newer, place::id_at(order.since));
    }
    Ok(())
}

/// Offers what topics got to whoever hears them here and was not offered it.
async fn offer_topics(
    delivery: &Delivery,
    peers: &Peers,
    edge: &dyn Edge,
    since: Place,
) -> Result<(), Failed> {
    let failed = |error| {
        tracing::warn!(%error, "topics could not be compared with the store; trying again");
        Failed
    };
    // Only those that are heard here: a page may name a topic that an earlier one did.
    let mut offered = HashSet::new();
    let mut next = Some(since);
    while let Some(from) = next {
        let page = delivery.store.topics_since(from, TOPIC_ROWS).await.map_err(failed)?;
        next = page.next;
        for (app, topic) in page.topics {
            if edge.topic_sessions(app, &topic) == 0 || !offered.insert((app, topic.clone())) {
                continue;
            }
            let missed = missed(delivery, app, &topic, since).await.map_err(failed)?;
            offer(peers, edge, &topic, missed).await;
        }
    }
    Ok(())
}

/// Offers messages of a topic as fast as they are taken.
pub(super) async fn offer(peers: &Peers, edge: &dyn Edge, topic: &Topic, messages: Vec<Arc<Message>>) {
    let target = Target::Topic(topic.clone());
    for message in messages {
        while !edge.has_room(&target) {
            tokio::time::sleep(FULL).await;
        }
        peers.metrics.offered.inc();
        edge.offer(message, topic);
    }
}

/// What a topic's log has behind `since`, found by going back from its end.
async fn missed(
    delivery: &Delivery,
    app: AppId,
    topic: &Topic,
    since: Place,
) -> Result<Vec<Arc<Message>>, noroshi_store::Error> {
    let now = delivery.clock.now();
    let end = Recover { app, topic: topic.clone(), since: None, retained: false, now };
    let end = delivery.store.recover(end).await?;
    let Some(end) = end.heads.into_iter().next().map(|head| head.position) else { return Ok(Vec::new()) };
    let (limit, mut back) = (place::id_at(since), BACK_FIRST);
    loop {
        let first = Position { offset: end.offset.saturating_sub(back), ..end };
        let (mut found, _) = behind(delivery, app, topic, first).await?;
        if first.offset == 0 || found.first().is_some_and(|message| message.id <= limit) {
            found.retain(|message| message.id > limit);
            return Ok(found);
        }
        back = back.saturating_mul(BACK_TIMES);
    }
}

/// What a topic's log has behind a position, and up to where that is all.
pub(super) async fn behind(
    delivery: &Delivery,
    app: AppId,
    topic: &Topic,
    mut from: Position,
) -> Result<(Vec<Arc<Message>>, Option<Position>), noroshi_store::Error> {
    let mut found = Vec::new();
    loop {
        let (topic, now) = (topic.clone(), delivery.clock.now());
        let page =
            delivery.store.recover(Recover { app, topic, since: Some(from), retained: false, now }).await?;
        let last = page.messages.last().and_then(|message| message.topic.as_ref());
        let next = last.map(|place| place.position).filter(|_| page.more);
        found.extend(page.messages);
        match next {
            Some(next) => from = next,
            None => return Ok((found, page.heads.into_iter().next().map(|head| head.position))),
        }
    }
}
