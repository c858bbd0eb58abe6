//! What the parts of the push side share.

use std::sync::Arc;

use noroshi_push::Vault;
use tokio::sync::Notify;

use crate::campaign::book::Book;
use crate::push::ahead::Ahead;
use crate::push::config::Config;
use crate::push::flight::Flight;
use crate::push::hygiene::Hygiene;
use crate::push::outlet::Outlet;

pub(crate) struct Side {
    pub(crate) config: Config,
    pub(crate) outlet: Arc<dyn Outlet>,
    /// None: the configuration has no key, and no credential can be kept.
    pub(crate) vault: Option<Vault>,
    pub(crate) flight: Arc<Flight>,
    pub(crate) ahead: Ahead,
    pub(crate) book: Book,
    pub(crate) hygiene: Hygiene,
    /// Wakes the collector.
    pub(crate) collect: Notify,
}

impl Side {
    pub(crate) fn new(outlet: Arc<dyn Outlet>, vault: Option<Vault>, config: Config) -> Self {
        Self {
            flight: Arc::new(Flight::new(config.clone())),
            config,
            outlet,
            vault,
            ahead: Ahead::default(),
            book: Book::default(),
            hygiene: Hygiene::default(),
            collect: Notify::new(),
        }
    }

    /// Push work was made: whoever takes or gathers it looks at once.
    pub(crate) fn wake(&self) {
        self.flight.wake();
        self.collect.notify_one();
    }
}
