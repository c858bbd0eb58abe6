//! What the parts of the push side share.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use noroshi_cluster::batches::BatchQueue;
use noroshi_push::{Credential, Vault};
use noroshi_types::CredentialId;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::campaign::book::Book;
use crate::push::ahead::Ahead;
use crate::push::config::Config;
use crate::push::failure::Failures;
use crate::push::flight::Flight;
use crate::push::hygiene::{Hygiene, Realm};
use crate::push::lead::Lead;
use crate::push::outlet::Outlet;
use crate::push::stint::Turns;

pub(crate) struct Side {
    pub(crate) config: Config,
    pub(crate) outlet: Arc<dyn Outlet>,
    /// None: the configuration has no key, and no credential can be kept.
    pub(crate) vault: Option<Vault>,
    /// Opened credentials with what they were opened from: pools of what did not change stay.
    pub(crate) opened: Mutex<HashMap<CredentialId, (Vec<u8>, Credential)>>,
    /// Kept credentials that do not open: what they are for waits until an operator acts.
    pub(crate) unreadable: Mutex<HashSet<Realm>>,
    /// Held from the look at the store until the pools have what it found, so that of two changes at once the
    /// later look is also the later to be handed over.
    pub(crate) handing: tokio::sync::Mutex<()>,
    pub(crate) flight: Arc<Flight>,
    pub(crate) lead: Lead,
    /// Between the dispatcher and the senders. Set before anything runs; none: senders take from the store.
    pub(crate) queue: OnceLock<Arc<dyn BatchQueue>>,
    pub(crate) ahead: Ahead,
    pub(crate) book: Book,
    pub(crate) hygiene: Hygiene,
    pub(crate) failures: Failures,
    /// Of batches, to compute.
    pub(crate) turns: Turns,
    /// Wakes the collector.
    pub(crate) collect: Notify,
    /// Wakes the dispatcher.
    pub(crate) dispatch: Notify,
}

impl Side {
    pub(crate) fn new(outlet: Arc<dyn Outlet>, vault: Option<Vault>, config: Config) -> Self {
        Self {
            flight: Arc::new(Flight::new(config.clone())),
            lead: Lead::new(!config.shared),
            queue: OnceLock::new(),
            ahead: Ahead::new(config.ahead_max()),
            config,
            outlet,
            vault,
            opened: Mutex::default(),
            unreadable: Mutex::default(),
            handing: tokio::sync::Mutex::default(),
            book: Book::default(),
            hygiene: Hygiene::default(),
            failures: Failures::default(),
            turns: Turns::new(),
            collect: Notify::new(),
            dispatch: Notify::new(),
        }
    }

    /// Push work was made: whoever takes or gathers it looks at once.
    pub(crate) fn wake(&self) {
        self.wake_senders();
        self.collect.notify_one();
    }

    /// There are batches to take.
    pub(crate) fn wake_senders(&self) {
        self.flight.wake();
        self.dispatch.notify_one();
    }
}
