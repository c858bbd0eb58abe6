//! What only exists until a session is open: the SASL exchange under way, what the client asked for with it,
//! and what it said without waiting for answers.

use noroshi_types::DeviceId;

use crate::xmpp::config::Config;
use crate::xmpp::sasl::Mechanism;
use crate::xmpp::scram::{ChannelBinding, ClientFirst, Exchange, Hash};

#[derive(Debug, Default)]
pub(super) struct Opening {
    pub(super) exchange: Step,
    /// XEP-0388, not RFC 6120's profile.
    pub(super) sasl2: bool,
    /// The localpart that the client logs in as.
    pub(super) local: Box<str>,
    /// SCRAM's last message, for the element that tells success.
    pub(super) proof: Option<String>,
    pub(super) bind2: Option<Bind2>,
    pub(super) resume: Option<Resume>,
    /// Of the request that binds, and the resource it wants.
    pub(super) bind_id: Box<str>,
    pub(super) resource: Option<Box<str>>,
    pub(super) binding: Option<ChannelBinding>,
    pub(super) early: Vec<Box<str>>,
    pub(super) early_bytes: usize,
}

/// How far a SASL exchange is.
#[derive(Debug, Default)]
pub(super) enum Step {
    #[default]
    None,
    /// The mechanism is chosen; its first message is to come.
    Chosen(Mechanism),
    /// The caller was asked about a token.
    Token,
    /// The caller was asked for keys.
    Keys { hash: Hash, first: Box<ClientFirst> },
    /// The client has to prove that it knows them; no device if nobody has them.
    Proof { exchange: Box<Exchange>, device: Option<DeviceId> },
}

/// XEP-0386 §3.
#[derive(Debug, Default)]
pub(super) struct Bind2 {
    pub(super) tag: Option<Box<str>>,
    /// Stream management, and whether to be able to resume.
    pub(super) manage: Option<bool>,
    pub(super) inactive: bool,
}

#[derive(Debug)]
pub(super) struct Resume {
    pub(super) id: Box<str>,
    pub(super) handled: u32,
    pub(super) attempt: Attempt,
}

#[derive(Debug, Default)]
pub(super) enum Attempt {
    #[default]
    Made,
    /// What the session that is gone had handled, if that is known.
    Gone { handled: Option<u32> },
}

impl Opening {
    /// A log-in failed: nothing of it counts for the next.
    pub(super) fn forget_exchange(&mut self) {
        self.exchange = Step::None;
        (self.proof, self.bind2, self.resume) = (None, None, None);
    }

    /// False if more would wait than may.
    pub(super) fn keep_early(&mut self, config: &Config, text: &str) -> bool {
        let fits =
            self.early.len() < config.early_max && self.early_bytes + text.len() <= config.early_bytes_max;
        if fits {
            self.restore_early(text.into());
        }
        fits
    }

    pub(super) fn restore_early(&mut self, text: Box<str>) {
        self.early_bytes += text.len();
        self.early.push(text);
    }
}
