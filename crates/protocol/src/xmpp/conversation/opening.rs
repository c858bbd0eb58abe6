//! State that exists only until a session is open: the SASL exchange, what the client requested with it, and
//! buffered input.

use noroshi_types::DeviceId;

use crate::xmpp::config::Config;
use crate::xmpp::sasl::Mechanism;
use crate::xmpp::scram::{ClientFirst, Exchange, Hash};
use crate::xmpp::xml::element::Element;

#[derive(Debug, Default)]
pub(super) struct Opening {
    pub(super) exchange: Step,
    /// XEP-0388 instead of RFC 6120's profile.
    pub(super) sasl2: bool,
    /// The localpart that the client logs in as.
    pub(super) local: Box<str>,
    /// SCRAM's final message, for the success element.
    pub(super) proof: Option<String>,
    pub(super) bind2: Option<Bind2>,
    pub(super) resume: Option<Resume>,
    /// The id of the bind request, and the requested resource.
    pub(super) bind_id: Box<str>,
    pub(super) resource: Option<Box<str>>,
    pub(super) early: Vec<Box<str>>,
    pub(super) early_bytes: usize,
}

/// The state of a SASL exchange.
#[derive(Debug, Default)]
pub(super) enum Step {
    #[default]
    None,
    /// The mechanism was selected; its first message is due.
    Chosen(Mechanism),
    /// A token is being verified by the caller.
    Token,
    /// Keys are being looked up by the caller.
    Keys { hash: Hash, first: Box<ClientFirst> },
    /// The client's proof is due; `None` if no device has this name.
    Proof { exchange: Box<Exchange>, device: Option<DeviceId> },
}

/// XEP-0386 §3.
#[derive(Debug, Default)]
pub(super) struct Bind2 {
    pub(super) tag: Option<Box<str>>,
    /// Stream management, with whether the session shall be resumable.
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
    /// With the number of stanzas that the lost session handled, if known.
    Gone { handled: Option<u32> },
}

impl Resume {
    /// XEP-0198 §5. `None` if it is malformed.
    pub(super) fn parse(resume: Element<'_>) -> Option<Self> {
        let id = resume.attribute("previd").filter(|id| !id.is_empty())?;
        let handled = resume.attribute("h")?.parse().ok()?;
        Some(Self { id: id.into(), handled, attempt: Attempt::Made })
    }
}

impl Opening {
    /// Discards the state of a failed log-in.
    pub(super) fn forget_exchange(&mut self) {
        self.exchange = Step::None;
        (self.proof, self.bind2, self.resume) = (None, None, None);
    }

    /// Returns false if the limit is reached.
    pub(super) fn buffer_early(&mut self, config: &Config, text: &str) -> bool {
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

/// XEP-0198 §3: `resume='true'` or `'1'`.
pub(super) fn wants_resumption(enable: Element<'_>) -> bool {
    matches!(enable.attribute("resume"), Some("true" | "1"))
}
