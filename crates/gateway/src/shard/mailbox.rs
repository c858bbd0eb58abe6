//! How other threads reach a shard: bounded queues, and one wake-up for a batch.
//!
//! | queue | from | bound | when full |
//! |---|---|---|---|
//! | mail | publishing, API | `Config::mailbox_items`; before accepting [`Mailbox::has_room`] | a delivery is counted, and the shard reads the backlogs of its sessions again; the API waits |
//! | arrivals | acceptor, API, other shards | [`ARRIVALS`] | the connection is refused |
//! | replies | the store, verifying threads | [`REPLIES`]: as many as a shard requests at once | a defect: it is logged, and the reply waits in a list |
//! | closes | takeover, revocation, resumption | sessions removed from the registry, and clients that resume | never full |
//! | predecessors_gone | takeover | sessions whose predecessors were closed | never full |
//! | rechecks | changes of topic rules | each app once | never full |
//!
//! A shard that panicked or stalled permanently is *gone*: its mailbox accepts nothing more and reports that.
//! Publishing then refuses messages that could not arrive, and the shard is given no more sockets.
//!
//! Invariant: a thread that queues something then calls [`Mailbox::wake`]; the shard clears the pending mark before it
//! looks, so nothing waits unnoticed.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, SendTimeoutError, Sender, TrySendError, bounded};
use noroshi_auth::{Identity, Refused};
use noroshi_delivery::{Error, Fan, LoginResult};
use noroshi_store::{BacklogPage, LogPage};
use noroshi_types::{AppId, CloseReason, Message};
use parking_lot::Mutex;

use crate::fanout::load::Load;
use crate::fanout::mail::{Mail, Undelivered};
use crate::io::tls::TlsSession;
use crate::lifecycle::Origin;
use crate::lifecycle::clients::Seat;
use crate::protocol::jobs::{self, Completed};
use crate::session::gate::Permitted;
use crate::session::registry::Address;
use crate::session::stamp::Moment;
use crate::session::verification::Pending;
use crate::wire::Speaks;

pub(crate) const ARRIVALS: usize = 4_096;
pub(crate) const REPLIES: usize = crate::session::login::BATCHES_MAX
    + crate::session::reads::READS_MAX
    + jobs::JOBS_MAX
    + jobs::SCANS_MAX
    + jobs::QUERIES_MAX
    + crate::session::verification::VERIFYING_MAX
    + crate::session::gate::ASKING_MAX;

/// Deliveries of each [`Fan`] that may wait for one shard, beyond those of one more request, whatever the shard's speed:
/// of topics and conditions a shard writes several at once.
const DELIVERIES_MAX: [usize; 2] = [1 << 17, 1 << 19];

/// How often a thread that waits for room checks whether the shard still exists.
const GONE_LOOK: Duration = Duration::from_millis(100);

/// A socket for a shard.
pub(crate) struct Arrival {
    pub(crate) stream: std::net::TcpStream,
    pub(crate) kind: ArrivalKind,
    pub(crate) seat: Seat,
}

pub(crate) enum ArrivalKind {
    /// From a listener; in plaintext without `tls`.
    New { speaks: Speaks, tls: Option<Arc<rustls::ServerConfig>>, origin: Origin },
    /// From another shard, whose request is for a session of this one; or from the API, whose request is the gateway's.
    Moved(Box<Moved>),
    /// The answer was written: only the end of the connection is still awaited.
    Refused,
}

/// What moves with a socket.
pub(crate) struct Moved {
    pub(crate) tls: Option<Box<TlsSession>>,
    pub(crate) origin: Origin,
    /// Plaintext read so far, from the first byte of a request on.
    pub(crate) bytes: Vec<u8>,
    /// The address of the peer, if the socket is one end of a pair ([`crate::io::bridge`]).
    pub(crate) peer: Option<SocketAddr>,
}

/// A reply of the store, or of a verifying thread.
pub(crate) enum Reply {
    /// For a connection that waits at a gate.
    Permitted { to: (u32, u64), permitted: Permitted },
    /// A verified token.
    Verified { to: (u32, u64), answer: Result<Identity, Refused>, pending: Pending },
    LoggedIn {
        to: Vec<(u32, u64)>,
        /// Taken before the read was sent.
        asked: Moment,
        result: Result<Vec<LoginResult>, Error>,
    },
    /// A read for a connection that catches up. `what` is for the log.
    Read { to: (u32, u64), what: &'static str, result: Result<ReadAnswer, Error> },
    /// The result of a job that an adapter ran.
    Done { to: (u32, u64), done: Box<dyn Completed> },
}

/// What a read of [`crate::session::catch_up`] brought.
pub(crate) enum ReadAnswer {
    Backlog(BacklogPage),
    /// With the number of the topic's recovery.
    Topic(u64, BacklogPage),
    /// A page of the logs of an app's topics, for filters with wildcards.
    Log(LogPage),
    /// The messages that a session had in flight and that still exist.
    Outstanding(Vec<Arc<Message>>),
}

/// A session that has to end.
pub(crate) struct Close {
    pub(crate) address: Address,
    pub(crate) reason: CloseReason,
    /// A session that waits for what this one leaves: it is notified in any case.
    pub(crate) successor: Option<Address>,
    /// Closes the session only if it can be resumed by this id (XEP-0198 §5).
    pub(crate) previd: Option<Box<str>>,
}

/// Items without a bound of their own. The lock guards the list only.
pub(crate) struct List<T>(Mutex<Vec<T>>);

impl<T> List<T> {
    fn push(&self, item: T) {
        self.0.lock().push(item);
    }

    pub(crate) fn take(&self) -> Vec<T> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

pub(crate) struct Mailbox {
    mail: Sender<Mail>,
    mail_items: usize,
    /// Deliveries that are not written yet, in the order of [`Fan`].
    pub(crate) loads: [Load; 2],
    arrivals: Sender<Arrival>,
    replies: Sender<Reply>,
    /// Replies that found `replies` full.
    pub(crate) overflow: List<Reply>,
    pub(crate) closes: List<Close>,
    /// Sessions whose predecessors are gone.
    pub(crate) predecessors_gone: List<Address>,
    /// Apps whose topic rules changed.
    pub(crate) rechecks: List<AppId>,
    waker: mio::Waker,
    woken: AtomicBool,
    /// A delivery was lost: sessions have to read their backlogs again.
    lost: AtomicBool,
    /// Sockets given to the shard and not removed yet. A new socket goes to the shard with the fewest.
    pub(crate) connections: AtomicUsize,
    /// The sockets among them that have not shown a credential.
    pub(crate) unauthenticated: AtomicUsize,
    pub(crate) stopping: AtomicBool,
    /// Set for good: see the head of this file.
    gone: AtomicBool,
}

/// The shard's ends of the queues.
pub(crate) struct Receivers {
    pub(crate) mail: Receiver<Mail>,
    pub(crate) arrivals: Receiver<Arrival>,
    pub(crate) replies: Receiver<Reply>,
}

impl Mailbox {
    pub(crate) fn new(
        poll: &mio::Poll,
        waker: mio::Token,
        mail_items: usize,
    ) -> io::Result<(Self, Receivers)> {
        let (mail, mail_in) = bounded(mail_items);
        let (arrivals, arrivals_in) = bounded(ARRIVALS);
        let (replies, replies_in) = bounded(REPLIES);
        let mailbox = Self {
            mail,
            mail_items,
            loads: Default::default(),
            arrivals,
            replies,
            overflow: List::default(),
            closes: List::default(),
            predecessors_gone: List::default(),
            rechecks: List::default(),
            waker: mio::Waker::new(poll.registry(), waker)?,
            woken: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            unauthenticated: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        };
        Ok((mailbox, Receivers { mail: mail_in, arrivals: arrivals_in, replies: replies_in }))
    }

    /// Queues a delivery. If the mailbox is full, the shard reads it from the store.
    pub(crate) fn deliver(&self, mail: Mail) -> Result<(), Undelivered> {
        if self.is_gone() {
            return Err(Undelivered::Gone);
        }
        self.count(&mail, Load::add);
        let sent = self.mail.try_send(mail).map_err(|error| match error {
            TrySendError::Full(mail) => {
                self.dropped(&mail);
                self.lose();
                Undelivered::Full
            }
            TrySendError::Disconnected(mail) => {
                self.dropped(&mail);
                Undelivered::Gone
            }
        });
        self.wake();
        sent
    }

    /// Queues mail that may be dropped. Returns false if the mailbox is full or the shard is gone.
    pub(crate) fn notify(&self, mail: Mail) -> bool {
        let is_queued = !self.is_gone() && self.mail.try_send(mail).is_ok();
        self.wake();
        is_queued
    }

    /// Deliveries may be missing: the shard's sessions read their backlogs again.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Queues a request of the API behind earlier deliveries; waits for room. Never called by a shard, so no two can
    /// wait for each other.
    pub(crate) fn request(&self, mut mail: Mail) {
        while !self.is_gone() {
            match self.mail.send_timeout(mail, GONE_LOOK) {
                Ok(()) | Err(SendTimeoutError::Disconnected(_)) => break,
                Err(SendTimeoutError::Timeout(kept)) => mail = kept,
            }
        }
        self.wake();
    }

    /// The shard is gone. Its mail is lost here; kept messages are in the store.
    pub(crate) fn give_up(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    pub(crate) fn close(&self, address: Address, reason: CloseReason) {
        self.request_close(Close { address, reason, successor: None, previd: None });
    }

    pub(crate) fn request_close(&self, close: Close) {
        self.closes.push(close);
        self.wake();
    }

    pub(crate) fn report_predecessor_gone(&self, successor: Address) {
        self.predecessors_gone.push(successor);
        self.wake();
    }

    /// Requests a check of the sessions of these apps against new topic rules.
    pub(crate) fn recheck(&self, apps: &[AppId]) {
        let mut rechecks = self.rechecks.0.lock();
        for app in apps {
            if !rechecks.contains(app) {
                rechecks.push(*app);
            }
        }
        drop(rechecks);
        self.wake();
    }

    /// Gives the shard a socket. Returns it if there is no room.
    pub(crate) fn arrive(&self, arrival: Arrival) -> Result<(), Arrival> {
        if self.is_gone() {
            return Err(arrival);
        }
        self.connections.fetch_add(1, Ordering::Relaxed);
        let result = self.arrivals.try_send(arrival).map_err(|error| {
            self.left();
            error.into_inner()
        });
        self.wake();
        result
    }

    /// A connection has left the shard. Its end is counted before.
    pub(crate) fn left(&self) {
        self.connections.fetch_sub(1, Ordering::Release);
    }

    pub(crate) fn reply(&self, reply: Reply) {
        match self.replies.try_send(reply) {
            // Disconnected means that the shard stopped.
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            // A shard has no more than REPLIES requests open, so this is a defect. A lost reply would be worse: a
            // connection would wait for it forever.
            Err(TrySendError::Full(reply)) => {
                tracing::error!("more replies than a shard has requests: they wait in a list");
                self.overflow.push(reply);
            }
        }
        self.wake();
    }

    pub(crate) fn wake(&self) {
        if !self.woken.swap(true, Ordering::SeqCst) {
            // Fails only when the counter is full, which means that the shard will wake.
            let _ = self.waker.wake();
        }
    }

    /// Whether a message would be written within `delay_max`, behind `more` deliveries. Accepted messages may fill the
    /// rest of the mailbox.
    pub(crate) fn has_room(&self, fan: Fan, more: usize, delay_max: Duration) -> bool {
        let load = &self.loads[fan as usize];
        !self.is_gone()
            && self.mail.len() * 2 <= self.mail_items
            && load.deliveries() < DELIVERIES_MAX[fan as usize]
            && load.has_room(fan, more, delay_max)
    }

    /// How long `more` deliveries would wait. `None`: the shard is gone.
    pub(crate) fn delay(&self, fan: Fan, more: usize) -> Option<Duration> {
        (!self.is_gone()).then(|| self.loads[fan as usize].delay(more))
    }

    pub(crate) fn mail_len(&self) -> usize {
        self.mail.len()
    }

    // -- for the shard ----------------------------------------------------------------------------

    pub(crate) fn clear_wake(&self) {
        self.woken.store(false, Ordering::SeqCst);
    }

    /// The shard is about to mark a mail at its recipients.
    pub(crate) fn marked(&self, mail: &Mail) {
        self.count(mail, Load::mark);
    }

    /// A mail will not be delivered.
    pub(crate) fn dropped(&self, mail: &Mail) {
        self.count(mail, Load::remove);
    }

    fn count(&self, mail: &Mail, change: fn(&Load, usize)) {
        match mail {
            Mail::Direct { to, .. } => change(&self.loads[Fan::Named as usize], to.len()),
            Mail::Topic { deliveries, .. } | Mail::Condition { deliveries, .. } => {
                change(&self.loads[Fan::Topic as usize], *deliveries);
            }
            Mail::Subscribe { .. }
            | Mail::Unsubscribe { .. }
            | Mail::Offered { .. }
            | Mail::Stanza { .. }
            | Mail::Follow { .. }
            | Mail::Items { .. }
            | Mail::Reread { .. } => {}
        }
    }

    pub(crate) fn take_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed) && self.lost.swap(false, Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::dispatch::Dispatch;

    fn direct(count: usize) -> Mail {
        let to = vec![Address { shard: 0, slot: 0, generation: 0 }; count];
        Mail::Direct { dispatch: Dispatch::for_tests(), to }
    }

    fn topic(deliveries: usize) -> Mail {
        Mail::Topic { dispatch: Dispatch::for_tests(), key: 1, deliveries }
    }

    #[test]
    fn each_kind_of_delivery_has_its_own_bound() {
        let poll = mio::Poll::new().expect("a poll");
        let (mailbox, receivers) = Mailbox::new(&poll, mio::Token(0), 4).expect("a mailbox");
        let has = |fan| mailbox.has_room(fan, 0, Duration::MAX);
        let has_room = || (has(Fan::Named), has(Fan::Topic));
        let [named_max, topic_max] = DELIVERIES_MAX;
        assert_eq!(mailbox.deliver(direct(named_max - 1)), Ok(()));
        assert_eq!(has_room(), (true, true));
        assert_eq!(mailbox.deliver(direct(1)), Ok(()));
        assert_eq!(has_room(), (false, true));
        // Requests are refused from half of the items on; accepted ones fill the rest.
        assert_eq!(mailbox.deliver(topic(topic_max)), Ok(()));
        assert_eq!(has_room(), (false, false));
        assert!(mailbox.deliver(topic(0)).is_ok() && !mailbox.take_lost());
        assert_eq!(mailbox.deliver(direct(5)), Err(Undelivered::Full));
        assert!(mailbox.take_lost() && !mailbox.take_lost());
        let take = || mailbox.dropped(&receivers.mail.try_recv().expect("it waits"));
        take();
        take();
        assert_eq!(has_room(), (true, false));
        take();
        take();
        assert_eq!(has_room(), (true, true));
        assert_eq!(mailbox.loads.map(|load| load.deliveries()), [0, 0]);
    }

    #[test]
    fn a_full_reply_queue_loses_no_answer() {
        let poll = mio::Poll::new().expect("a poll");
        let (mailbox, receivers) = Mailbox::new(&poll, mio::Token(0), 1).expect("a mailbox");
        let failed = || Err(Error::Store(noroshi_store::Error::Overloaded));
        for slot in 0..=REPLIES {
            let to = (u32::try_from(slot).expect("few"), 0);
            mailbox.reply(Reply::Read { to, what: "a backlog", result: failed() });
        }
        let (mut came, over) = (receivers.replies.len(), mailbox.overflow.take());
        came += over.len();
        assert_eq!((came, over.len()), (REPLIES + 1, 1));
        assert!(mailbox.overflow.take().is_empty());
    }

    #[test]
    fn a_gone_shard_gets_nothing_and_blocks_nobody() {
        let poll = mio::Poll::new().expect("a poll");
        let (mailbox, receivers) = Mailbox::new(&poll, mio::Token(0), 1).expect("a mailbox");
        assert_eq!(mailbox.deliver(direct(1)), Ok(()));
        std::thread::scope(|scope| {
            // It waits for room that never comes.
            scope.spawn(|| mailbox.request(topic(1)));
            mailbox.give_up();
        });
        assert_eq!(mailbox.deliver(direct(1)), Err(Undelivered::Gone));
        assert!(!mailbox.has_room(Fan::Named, 0, Duration::MAX) && mailbox.delay(Fan::Topic, 0).is_none());
        assert!(mailbox.arrive(arrival()).is_err());
        assert_eq!(mailbox.connections.load(Ordering::Relaxed), 0);
        drop(receivers);
    }

    #[test]
    fn a_shard_that_ended_gets_nothing() {
        let poll = mio::Poll::new().expect("a poll");
        let (mailbox, receivers) = Mailbox::new(&poll, mio::Token(0), 4).expect("a mailbox");
        drop(receivers);
        assert_eq!(mailbox.deliver(direct(1)), Err(Undelivered::Gone));
        assert_eq!(mailbox.loads[Fan::Named as usize].deliveries(), 0);
        assert!(mailbox.arrive(arrival()).is_err());
    }

    fn arrival() -> Arrival {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let stream = std::net::TcpStream::connect(address).expect("connected");
        let nobody = std::sync::Arc::new(crate::lifecycle::clients::Clients::new(0));
        let seat = Seat::take_anyway(&nobody, noroshi_auth::ClientNetwork::NONE);
        Arrival { stream, kind: ArrivalKind::Refused, seat }
    }
}
