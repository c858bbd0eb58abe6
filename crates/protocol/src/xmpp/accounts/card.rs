//! vCards (XEP-0054): one per account, as its client wrote it, visible to the account itself and to those who
//! receive its presence. For others, accounts with a vCard, without one, and missing accounts are
//! indistinguishable.

use bytes::Bytes;

use super::Accounts;
use crate::xmpp::error::Refusal;
use crate::xmpp::namespace as ns;
use crate::xmpp::xml::Element;
use crate::xmpp::xml::write::{content_of, element};

/// Limit of a vCard in bytes, including its photo.
const CARD_BYTES_MAX: usize = 32 << 10;

/// A vCard element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card(Bytes);

impl Card {
    /// Returns `None` if it is too long.
    pub(in crate::xmpp) fn new(card: Element<'_>) -> Option<Self> {
        let content = content_of(card, Some(ns::CARD), CARD_BYTES_MAX, |_| false)?;
        Some(Self(element("vCard", &[("xmlns", ns::CARD)], |out| {
            out.reserve_exact(content.len() + "</vCard>".len());
            out.extend_from_slice(&content);
        })))
    }
}

impl<S: Copy + Eq> Accounts<S> {
    pub fn put_card(&mut self, user: &str, card: Card) -> Result<(), Refusal> {
        self.accounts.get_mut(user).ok_or(Refusal::Forbidden)?.card = Some(card);
        Ok(())
    }

    /// `owner`: a bare address; `None`: the account's own.
    pub fn card(&self, user: &str, owner: Option<&str>) -> Result<Bytes, Refusal> {
        let card = |name: &str| self.accounts.get(name)?.card.as_ref().map(|card| card.0.clone());
        match owner {
            None => card(user).ok_or(Refusal::NotFound), // §3.1
            // §3.3 requires one error for all cases, so that addresses cannot be harvested.
            Some(owner) => {
                let name = self.name_of(owner).filter(|_| self.knows(user, owner));
                name.and_then(|name| card(&name)).ok_or(Refusal::Unavailable)
            }
        }
    }
}
