//! How other threads reach a shard: bounded queues and one wake for a batch.
//!
//! | queue | from | bound | when full |
//! |---|---|---|---|
//! | mail | publishing, API | `Config::mailbox_items`; [`DIRECT_MAX`] and [`FANNED_MAX`] before accepting | a delivery is counted and makes the shard read its sessions' backlogs again; the API waits |
//! | arrivals | acceptor, the API, other shards | [`ARRIVALS`] | the connection is refused |
//! | replies | answers of the store and of the threads that verify | [`REPLIES`]: as many as a shard asks at once | a defect: it is logged, and the answer waits in a list |
//! | closes | takeover, revocation, resumption | sessions taken out of the registry, and clients that resume | cannot be |
//! | succeeding | takeover | sessions whose predecessors were closed | cannot be |
//! | rechecks | changes of topic rules | an app is there once | cannot be |
//!
//! A shard that panicked or stalled for good is *gone*: its mailbox takes nothing more and says so, so that publishing
//! refuses what could not arrive and no socket is given to it.
//!
//! Invariant: whoever queued something calls [`Mailbox::wake`] afterwards; the shard clears the
//! pending mark before it looks, so nothing waits unseen.

use crate::fanout::mail::{Mail, Undelivered};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crossbeam_channel::{Receiver, SendTimeoutError, Sender, TrySendError, bounded};
use noroshi_auth::{Identity, Refused};
use noroshi_delivery::{Entered, Error};
use noroshi_store::{BacklogPage, LogPage};
use noroshi_types::{AppId, CloseReason, Message};
use parking_lot::Mutex;

use crate::io::tls::TlsSession;
use crate::lifecycle::clients::Seat;
use crate::lifecycle::origin::Origin;
use crate::protocol::requests::{self, Completed};
use crate::session::gate::Permitted;
use crate::session::registry::Address;
use crate::session::stamp::Moment;
use crate::session::verification::Pending;
use crate::wire::Speaks;

pub(crate) const ARRIVALS: usize = 4_096;
pub(crate) const REPLIES: usize = crate::session::login::BATCHES_MAX
    + crate::session::reads::READS_MAX
    + requests::JOBS_MAX
    + requests::SCANS_MAX
    + requests::QUERIES_MAX
    + crate::session::verification::VERIFYING_MAX
    + crate::session::gate::ASKING_MAX;

/// Deliveries to users and devices that may wait for one shard, besides those of one more request:
/// about a second of its work. More would only wait longer, and all that comes behind them too.
const DIRECT_MAX: usize = 1 << 17;
/// The same for topics and conditions, of which it writes several at once.
const FANNED_MAX: usize = 1 << 19;

/// How often a thread that waits for room looks whether the shard is still there.
const GONE_LOOK: Duration = Duration::from_millis(100);

/// A socket for a shard.
pub(crate) struct Arrival {
    pub(crate) stream: std::net::TcpStream,
    pub(crate) kind: ArrivalKind,
    pub(crate) seat: Seat,
}

pub(crate) enum ArrivalKind {
    Plain(Speaks),
    /// A plain one over the rate of connects.
    OverRate(Speaks),
    Tls(Arc<rustls::ServerConfig>, Speaks),
    /// Another shard's, whose request is for a session of this one, or the API's, whose request is the gateway's.
    Moved(Box<Moved>),
    /// The answer was written: only wait for its end.
    Refused,
}

/// What is moved besides the socket.
pub(crate) struct Moved {
    pub(crate) tls: Option<Box<TlsSession>>,
    pub(crate) origin: Origin,
    /// Plaintext read so far, from the first byte of a request on.
    pub(crate) bytes: Vec<u8>,
    /// Whose it is, where the socket is one end of a pair ([`crate::io::bridge`]).
    pub(crate) peer: Option<SocketAddr>,
}

/// An answer of the store, or of the threads that verify.
pub(crate) enum Reply {
    /// To who waits at a gate.
    Permitted {
        to: (u32, u64),
        permitted: Permitted,
    },
    /// Whose token it is.
    Verified {
        to: (u32, u64),
        answer: Result<Identity, Refused>,
        pending: Pending,
    },
    LoggedIn {
        to: Vec<(u32, u64)>,
        /// Taken before the read was sent.
        asked: Moment,
        result: Result<Vec<Entered>, Error>,
    },
    Backlog {
        to: (u32, u64),
        result: Result<BacklogPage, Error>,
    },
    Log {
        to: (u32, u64),
        result: Result<LogPage, Error>,
    },
    Outstanding {
        to: (u32, u64),
        result: Result<Vec<Arc<Message>>, Error>,
    },
    /// The result of a job that an adapter ran.
    Done {
        to: (u32, u64),
        done: Box<dyn Completed>,
    },
    Recovered {
        to: (u32, u64),
        recovery: u64,
        result: Result<BacklogPage, Error>,
    },
}

/// A session that has to end.
pub(crate) struct Close {
    pub(crate) address: Address,
    pub(crate) reason: CloseReason,
    /// Waits for what it leaves.
    pub(crate) successor: Option<Address>,
    /// Only if the session can be resumed by this id (XEP-0198 §5); else it stays.
    pub(crate) previd: Option<Box<str>>,
}

pub(crate) struct Mailbox {
    mail: Sender<Mail>,
    mail_items: usize,
    /// Deliveries that are not marked yet: to users and devices, to topics and conditions.
    direct: AtomicUsize,
    fanned: AtomicUsize,
    arrivals: Sender<Arrival>,
    replies: Sender<Reply>,
    /// Answers that found `replies` full. Guards the list only.
    overflow: Mutex<Vec<Reply>>,
    /// Guards the list only.
    closes: Mutex<Vec<Close>>,
    /// Sessions whose predecessors are gone.
    succeeding: Mutex<Vec<Address>>,
    /// Apps whose topic rules changed.
    rechecks: Mutex<Vec<AppId>>,
    waker: mio::Waker,
    woken: AtomicBool,
    /// A delivery was lost: sessions have to read their backlogs again.
    lost: AtomicBool,
    /// Sockets given to the shard and not yet removed: what the least loaded is chosen by.
    pub(crate) connections: AtomicUsize,
    /// Of them, those that have not shown a credential.
    pub(crate) strangers: AtomicUsize,
    pub(crate) stopping: AtomicBool,
    /// Set for good: see the head of this file.
    gone: AtomicBool,
}

/// The shard's ends.
pub(crate) struct Inlet {
    pub(crate) mail: Receiver<Mail>,
    pub(crate) arrivals: Receiver<Arrival>,
    pub(crate) replies: Receiver<Reply>,
}

impl Mailbox {
    pub(crate) fn new(poll: &mio::Poll, waker: mio::Token, mail_items: usize) -> io::Result<(Self, Inlet)> {
        let (mail, mail_in) = bounded(mail_items);
        let (arrivals, arrivals_in) = bounded(ARRIVALS);
        let (replies, replies_in) = bounded(REPLIES);
        let mailbox = Self {
            mail,
            mail_items,
            direct: AtomicUsize::new(0),
            fanned: AtomicUsize::new(0),
            arrivals,
            replies,
            overflow: Mutex::default(),
            closes: Mutex::default(),
            succeeding: Mutex::default(),
            rechecks: Mutex::default(),
            waker: mio::Waker::new(poll.registry(), waker)?,
            woken: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            strangers: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            gone: AtomicBool::new(false),
        };
        Ok((mailbox, Inlet { mail: mail_in, arrivals: arrivals_in, replies: replies_in }))
    }

    /// Queues a delivery, or says why not. What finds the mailbox full is read again from the store.
    pub(crate) fn deliver(&self, mail: Mail) -> Result<(), Undelivered> {
        if self.is_gone() {
            return Err(Undelivered::Gone);
        }
        self.count(&mail, AtomicUsize::fetch_add);
        let sent = self.mail.try_send(mail).map_err(|error| match error {
            TrySendError::Full(mail) => {
                self.marked(&mail);
                self.lose();
                Undelivered::Full
            }
            TrySendError::Disconnected(mail) => {
                self.marked(&mail);
                Undelivered::Gone
            }
        });
        self.wake();
        sent
    }

    /// Deliveries may be missing: the shard's sessions read their backlogs again.
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Queues for the API, behind the deliveries that came before; waits if there is no room. Never
    /// called by a shard, so no two can wait for each other.
    pub(crate) fn request(&self, mut mail: Mail) {
        while !self.is_gone() {
            match self.mail.send_timeout(mail, GONE_LOOK) {
                Ok(()) | Err(SendTimeoutError::Disconnected(_)) => break,
                Err(SendTimeoutError::Timeout(kept)) => mail = kept,
            }
        }
        self.wake();
    }

    /// The shard will not answer any more. What waits for it is lost here; what is kept is in the store.
    pub(crate) fn give_up(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    pub(crate) fn close(&self, address: Address, reason: CloseReason) {
        self.closes.lock().push(Close { address, reason, successor: None, previd: None });
        self.wake();
    }

    /// `successor` takes over from the session at `address`, and is told when that is gone.
    pub(crate) fn replace(&self, address: Address, successor: Option<Address>) {
        let reason = CloseReason::Replaced;
        self.closes.lock().push(Close { address, reason, successor, previd: None });
        self.wake();
    }

    /// Ends the session at `address` if it can be resumed by `previd`. `successor` is told in either case.
    pub(crate) fn resume(&self, address: Address, previd: Box<str>, successor: Address) {
        let (reason, successor) = (CloseReason::Replaced, Some(successor));
        self.closes.lock().push(Close { address, reason, successor, previd: Some(previd) });
        self.wake();
    }

    pub(crate) fn succeed(&self, successor: Address) {
        self.succeeding.lock().push(successor);
        self.wake();
    }

    /// Sessions of these apps have to be checked by other topic rules.
    pub(crate) fn recheck(&self, apps: &[AppId]) {
        let mut rechecks = self.rechecks.lock();
        for app in apps.iter().filter(|app| !rechecks.contains(app)).copied().collect::<Vec<_>>() {
            rechecks.push(app);
        }
        drop(rechecks);
        self.wake();
    }

    /// Gives a socket, or gives it back.
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

    /// A connection is no longer the shard's. What is known of its end is counted before.
    pub(crate) fn left(&self) {
        self.connections.fetch_sub(1, Ordering::Release);
    }

    pub(crate) fn reply(&self, reply: Reply) {
        match self.replies.try_send(reply) {
            // Disconnected means that the shard stopped.
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            // A shard has no more than REPLIES questions open, so this is a defect. A lost answer would be worse: who
            // waits for it would wait for good.
            Err(TrySendError::Full(reply)) => {
                tracing::error!("more answers than a shard asks for at once: they wait in a list");
                self.overflow.lock().push(reply);
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

    pub(crate) fn has_room_for_direct(&self) -> bool {
        !self.is_gone() && self.is_half_empty() && self.direct.load(Ordering::Relaxed) < DIRECT_MAX
    }

    pub(crate) fn has_room_for_topics(&self) -> bool {
        !self.is_gone() && self.is_half_empty() && self.fanned.load(Ordering::Relaxed) < FANNED_MAX
    }

    fn is_half_empty(&self) -> bool {
        self.mail.len() * 2 <= self.mail_items
    }

    pub(crate) fn mail_len(&self) -> usize {
        self.mail.len()
    }

    // -- for the shard ----------------------------------------------------------------------------

    pub(crate) fn clear_wake(&self) {
        self.woken.store(false, Ordering::SeqCst);
    }

    /// A mail waits no more.
    pub(crate) fn marked(&self, mail: &Mail) {
        self.count(mail, AtomicUsize::fetch_sub);
    }

    fn count(&self, mail: &Mail, change: fn(&AtomicUsize, usize, Ordering) -> usize) {
        match mail {
            Mail::Direct { to, .. } => change(&self.direct, to.len(), Ordering::Relaxed),
            Mail::Topic { deliveries, .. } | Mail::Condition { deliveries, .. } => {
                change(&self.fanned, *deliveries, Ordering::Relaxed)
            }
            Mail::Subscribe { .. }
            | Mail::Unsubscribe { .. }
            | Mail::Offered { .. }
            | Mail::Stanza { .. }
            | Mail::Reread { .. } => 0,
        };
    }

    pub(crate) fn take_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed) && self.lost.swap(false, Ordering::SeqCst)
    }

    pub(crate) fn take_closes(&self) -> Vec<Close> {
        std::mem::take(&mut *self.closes.lock())
    }

    pub(crate) fn take_overflow(&self) -> Vec<Reply> {
        std::mem::take(&mut *self.overflow.lock())
    }

    pub(crate) fn take_rechecks(&self) -> Vec<AppId> {
        std::mem::take(&mut *self.rechecks.lock())
    }

    pub(crate) fn take_succeeding(&self) -> Vec<Address> {
        std::mem::take(&mut *self.succeeding.lock())
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
    fn what_waits_is_bounded_for_each_kind_by_itself() {
        let poll = mio::Poll::new().expect("a poll");
        let (mailbox, inlet) = Mailbox::new(&poll, mio::Token(0), 4).expect("a mailbox");
        let has_room = || (mailbox.has_room_for_direct(), mailbox.has_room_for_topics());
        assert_eq!(mailbox.deliver(direct(DIRECT_MAX - 1)), Ok(()));
        assert_eq!(has_room(), (true, true));
        assert_eq!(mailbox.deliver(direct(1)), Ok(()));
        assert_eq!(has_room(), (false, true));
        // Half of the items is full for requests; what was accepted goes on to the last.
        assert_eq!(mailbox.deliver(topic(FANNED_MAX)), Ok(()));
        assert_eq!(has_room(), (false, false));
        assert!(mailbox.deliver(topic(0)).is_ok() && !mailbox.take_lost());
        assert_eq!(mailbox.deliver(direct(5)), Err(Undelivered::Full));
        assert!(mailbox.take_lost() && !mailbox.take_lost());
        let take = || mailbox.marked(&inlet.mail.try_recv().expect("it waits"));
        take();
        take();
        assert_eq!(has_room(), (true, false));
        take();
        take();
        assert_eq!(has_room(), (true, true));
        assert_eq!((mailbox.direct.into_inner(), mailbox.fanned.into_inner()), (0, 0));
    }

    #[test]
    fn a_full_reply_queue_loses_no_answer() {
        let poll = mio::Poll::new().expect("a poll");
        let (mailbox, inlet) = Mailbox::new(&poll, mio::Token(0), 1).expect("a mailbox");
        let failed = || Err(Error::Store(noroshi_store::Error::Overloaded));
        for slot in 0..=REPLIES {
            let to = (u32::try_from(slot).expect("few"), 0);
            mailbox.reply(Reply::Backlog { to, result: failed() });
        }
        let (mut came, over) = (inlet.replies.len(), mailbox.take_overflow());
        came += over.len();
        assert_eq!((came, over.len()), (REPLIES + 1, 1));
        assert!(mailbox.take_overflow().is_empty());
    }

    #[test]
    fn a_shard_that_is_gone_gets_nothing_and_nobody_waits_for_it() {
        let poll = mio::Poll::new().expect("a poll");
        let (mailbox, inlet) = Mailbox::new(&poll, mio::Token(0), 1).expect("a mailbox");
        assert_eq!(mailbox.deliver(direct(1)), Ok(()));
        std::thread::scope(|scope| {
            // It waits for room that never comes.
            scope.spawn(|| mailbox.request(topic(1)));
            mailbox.give_up();
        });
        assert_eq!(mailbox.deliver(direct(1)), Err(Undelivered::Gone));
        assert!(!mailbox.has_room_for_direct() && !mailbox.has_room_for_topics());
        assert!(mailbox.arrive(arrival()).is_err());
        assert_eq!(mailbox.connections.load(Ordering::Relaxed), 0);
        drop(inlet);
    }

    #[test]
    fn a_shard_that_ended_gets_nothing() {
        let poll = mio::Poll::new().expect("a poll");
        let (mailbox, inlet) = Mailbox::new(&poll, mio::Token(0), 4).expect("a mailbox");
        drop(inlet);
        assert_eq!(mailbox.deliver(direct(1)), Err(Undelivered::Gone));
        assert_eq!(mailbox.direct.load(Ordering::Relaxed), 0);
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
