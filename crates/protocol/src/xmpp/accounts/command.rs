//! What clients of accounts ask of the table, and its answers.

use bytes::Bytes;
use noroshi_types::Timestamp;

use super::{
    Accounts, ArchiveRules, Card, Outbox, Outcome, PersonalItem, PushChange, Recipient, Relayed, RosterChange,
};
use crate::xmpp::answer::Answer;
use crate::xmpp::error::Refusal;

#[derive(Debug)]
pub enum Command {
    /// Relay a stanza, possibly to the account itself.
    Relay { to: Recipient, stanza: Relayed },
    /// Broadcast presence.
    Announce(Relayed),
    /// The roster, unless the client has this version.
    Roster { known: Option<Box<str>> },
    /// Add, change or remove a contact.
    ChangeRoster(RosterChange),
    /// Publish a personal event (XEP-0163).
    PublishPersonal(PersonalItem),
    /// Personal events of the account or of another bare address.
    PersonalItems { owner: Box<str>, node: Box<str> },
    /// The nodes whose events the client wants.
    Want(Vec<Box<str>>),
    /// Archiving preferences (XEP-0313 §5), replaced if set.
    ArchiveRules(Option<ArchiveRules>),
    /// Enable or disable carbons for this resource (XEP-0280).
    Copy { wanted: bool },
    /// The vCard of the account, or of another bare address (XEP-0054).
    Card { owner: Option<Box<str>> },
    /// Replace the vCard.
    PutCard(Card),
    /// Change push registrations (XEP-0357).
    ChangePush(PushChange),
    /// Whether the account may learn that another bare address exists.
    Describe { owner: Box<str> },
}

impl Command {
    /// Whether the table must know the session before it executes the command.
    pub fn is_for_attached(&self) -> bool {
        use Command::{Announce, ChangeRoster, Copy, PublishPersonal, Relay, Roster};
        matches!(
            self,
            Relay { .. } | Announce(_) | Roster { .. } | ChangeRoster(_) | PublishPersonal(_) | Copy { .. }
        )
    }
}

impl<S: Copy + Eq> Accounts<S> {
    /// Executes a command of a session, attached if [`Command::is_for_attached`]. `None`: the client gets no answer.
    pub fn execute(
        &mut self,
        user: &str,
        session: S,
        command: Command,
        now: Timestamp,
        outbox: &mut Outbox<S>,
    ) -> Option<Answer> {
        let content = |content: Result<Bytes, Refusal>| content.map_or_else(Answer::Refused, Answer::Content);
        let done = |done: Result<(), Refusal>| done.map_or_else(Answer::Refused, |()| Answer::Done);
        Some(match command {
            Command::Relay { to, stanza } if stanza.is_presence() => {
                self.direct(user, session, &to, &stanza, outbox);
                return None;
            }
            Command::Relay { to, stanza } => match self.route(user, session, &to, &stanza, now, outbox) {
                Outcome::Done => return None,
                Outcome::Refused => Answer::Refused(Refusal::Unavailable),
            },
            Command::Announce(presence) => {
                self.announce(user, session, presence, outbox);
                return None;
            }
            Command::Roster { known } => {
                self.roster(user, session, known.as_deref()).map_or(Answer::Done, Answer::Content)
            }
            Command::ChangeRoster(change) => done(self.change_roster(user, change, outbox)),
            Command::PublishPersonal(item) => content(self.publish(user, item, outbox)),
            Command::PersonalItems { owner, node } => content(self.items(user, &owner, &node)),
            Command::Want(nodes) => {
                self.want(user, session, nodes, outbox);
                return None;
            }
            Command::ArchiveRules(rules) => content(self.archive_rules(user, rules)),
            Command::Copy { wanted } => {
                self.copy(user, session, wanted);
                Answer::Done
            }
            Command::Card { owner } => content(self.card(user, owner.as_deref())),
            Command::PutCard(card) => done(self.put_card(user, card)),
            Command::ChangePush(change) => done(self.change_push(user, change)),
            Command::Describe { owner } if self.knows(user, &owner) => Answer::Done,
            Command::Describe { .. } => Answer::Refused(Refusal::Unavailable),
        })
    }
}
