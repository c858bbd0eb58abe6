//! People who use the console: their roles, sessions and invitations, and the audit log of what was changed.
//!
//! Secrets are stored as hashes (passwords as Argon2id in the PHC format, tokens as SHA-256). The caller checks them.

use noroshi_types::{AppId, PersonId, Role, Timestamp};

use crate::Error;

/// SHA-256 of a random token.
pub type TokenHash = [u8; 32];

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    pub id: PersonId,
    /// In lower case. No two people have the same.
    pub email: String,
    pub name: String,
    pub login: PersonLogin,
    pub created_at: Timestamp,
    /// Set: the person cannot log in, and has no sessions.
    pub disabled_at: Option<Timestamp>,
    /// In the order of the apps. `None` stands for all apps.
    pub roles: Vec<(Option<AppId>, Role)>,
    /// Those of `roles` that an OpenID provider's mapping gave. People gave the others.
    pub mapped: Vec<Option<AppId>>,
}

/// How a person logs in.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PersonLogin {
    /// Argon2id in the PHC format. `None`: no log-in with a password.
    pub password: Option<String>,
    /// The sealed TOTP secret.
    pub totp: Option<Vec<u8>>,
    /// False: the person has not entered a code of the secret yet.
    pub totp_is_on: bool,
    /// Recovery codes that were not used.
    pub recovery: Vec<TokenHash>,
    /// Issuer and subject of an OpenID provider.
    pub openid: Option<OpenId>,
}

/// A person as an OpenID provider knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenId {
    pub issuer: String,
    pub subject: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPerson {
    pub email: String,
    pub name: String,
    pub password: Option<String>,
    pub openid: Option<OpenId>,
    pub roles: Vec<(Option<AppId>, Role)>,
}

/// What [`People::change_person`] changes. `None` keeps the value.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PersonChange {
    pub name: Option<String>,
    pub password: Option<String>,
    pub totp: Option<TotpChange>,
    pub openid: Option<OpenId>,
    pub is_disabled: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TotpChange {
    /// A new secret, which is off.
    Secret(Vec<u8>),
    /// The secret is on; `step` is that of the code the person entered.
    On {
        step: u64,
        recovery: Vec<TokenHash>,
    },
    Off,
}

/// A log-in in one browser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonSession {
    pub id: u64,
    pub person: PersonId,
    pub created_at: Timestamp,
    pub seen_at: Timestamp,
    /// When the person last proved who they are.
    pub confirmed_at: Timestamp,
    pub expires_at: Timestamp,
    /// Of the client at the log-in.
    pub address: String,
    pub agent: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPersonSession {
    pub hash: TokenHash,
    pub person: PersonId,
    /// When the person proved who they are.
    pub confirmed_at: Timestamp,
    pub expires_at: Timestamp,
    pub address: String,
    pub agent: String,
}

/// A token that works once: an invitation, or the log-in of a person who exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    pub id: u64,
    pub purpose: TicketPurpose,
    /// `None`: the operator's token, or the node.
    pub created_by: Option<PersonId>,
    pub created_at: Timestamp,
    pub expires_at: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TicketPurpose {
    Invitation { email: String, roles: Vec<(Option<AppId>, Role)> },
    LogIn(PersonId),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTicket {
    pub hash: TokenHash,
    pub purpose: TicketPurpose,
    pub created_by: Option<PersonId>,
    pub expires_at: Timestamp,
}

/// A change, and who made it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// In the order of the changes.
    pub id: u64,
    pub at: Timestamp,
    pub change: Audited,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audited {
    pub by: AuditedBy,
    /// `None`: it concerns no app, or all.
    pub app: Option<AppId>,
    /// Such as `key.create`.
    pub action: String,
    /// What was changed, such as the name of a key.
    pub target: String,
    /// JSON without secrets.
    pub before: Option<String>,
    pub after: Option<String>,
    pub address: String,
    pub request: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditedBy {
    /// Their address remains when they are deleted.
    Person {
        id: PersonId,
        email: String,
    },
    /// The name of an `admin` key.
    Key(String),
    OperatorToken,
    /// Noroshi itself.
    Node,
}

/// Which entries to list, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    pub app: Option<AppId>,
    pub person: Option<PersonId>,
    /// All actions that begin with this text.
    pub action: Option<String>,
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
    /// Only entries with a smaller id.
    pub before: Option<u64>,
    pub limit: usize,
}

#[async_trait::async_trait]
pub trait People: Send + Sync {
    /// [`Error::Exists`] if another person has the address or the OpenID, [`Error::Limit`] beyond
    /// [`noroshi_types::limits::PEOPLE_MAX`].
    async fn create_person(&self, new: NewPerson, now: Timestamp) -> Result<Person, Error>;
    async fn person(&self, id: PersonId) -> Result<Option<Person>, Error>;
    async fn person_with_email(&self, email: &str) -> Result<Option<Person>, Error>;
    async fn person_with_openid(&self, openid: OpenId) -> Result<Option<Person>, Error>;
    /// By id.
    async fn people(&self, after: PersonId, limit: usize) -> Result<Vec<Person>, Error>;
    /// Those with a role in the app itself, by id.
    async fn people_of_app(&self, app: AppId, after: PersonId, limit: usize) -> Result<Vec<Person>, Error>;
    /// Disabling a person ends their sessions. [`Error::Conflict`] if nobody could manage people afterwards: the last
    /// owner of all apps.
    async fn change_person(
        &self,
        id: PersonId,
        change: PersonChange,
        now: Timestamp,
    ) -> Result<Person, Error>;
    /// As [`People::change_person`] for the last owner.
    async fn delete_person(&self, id: PersonId) -> Result<(), Error>;
    /// Gives the person a role in an app (`None`: in all apps), or takes it. As [`People::change_person`] for the last owner.
    async fn set_role(&self, id: PersonId, app: Option<AppId>, role: Option<Role>) -> Result<Person, Error>;
    /// Replaces the roles that an OpenID provider's mapping gave. A role that a person gave stays, and takes precedence in its
    /// app. The last owner can lose a mapped role: the provider decides, and the operator can invite an owner.
    async fn map_roles(&self, id: PersonId, roles: Vec<(Option<AppId>, Role)>) -> Result<Person, Error>;
    /// Whether the code of this time step may be used: no code works twice.
    async fn use_totp(&self, id: PersonId, step: u64) -> Result<bool, Error>;
    /// Whether the person had the recovery code, which is used then.
    async fn use_recovery_code(&self, id: PersonId, code: TokenHash) -> Result<bool, Error>;

    /// [`Error::NotFound`] if the person is gone or disabled. The oldest sessions end beyond
    /// [`noroshi_types::limits::SESSIONS_OF_A_PERSON_MAX`].
    async fn create_session(&self, new: NewPersonSession, now: Timestamp) -> Result<PersonSession, Error>;
    /// `None` if it expired, or was last seen before `idle_since`.
    async fn person_session(
        &self,
        hash: TokenHash,
        idle_since: Timestamp,
        now: Timestamp,
    ) -> Result<Option<(PersonSession, Person)>, Error>;
    async fn touch_session(&self, id: u64, now: Timestamp) -> Result<(), Error>;
    async fn confirm_session(&self, id: u64, now: Timestamp) -> Result<(), Error>;
    /// Those that are not over, the newest first.
    async fn person_sessions(
        &self,
        person: PersonId,
        idle_since: Timestamp,
        now: Timestamp,
    ) -> Result<Vec<PersonSession>, Error>;
    async fn end_session(&self, person: PersonId, id: u64) -> Result<(), Error>;
    /// Ends the person's sessions except one.
    async fn end_other_sessions(&self, person: PersonId, except: Option<u64>) -> Result<u64, Error>;

    /// [`Error::Limit`] beyond [`noroshi_types::limits::TICKETS_MAX`].
    async fn create_ticket(&self, new: NewTicket, now: Timestamp) -> Result<Ticket, Error>;
    /// The ticket, if it did not expire. It stays valid.
    async fn ticket(&self, hash: TokenHash, now: Timestamp) -> Result<Option<Ticket>, Error>;
    /// Takes a ticket: of concurrent calls, one gets it.
    async fn take_ticket(&self, hash: TokenHash, now: Timestamp) -> Result<Option<Ticket>, Error>;
    /// Invitations that did not expire, the newest first.
    async fn invitations(&self, now: Timestamp) -> Result<Vec<Ticket>, Error>;
    async fn delete_ticket(&self, id: u64) -> Result<(), Error>;

    async fn record_audit(&self, changes: Vec<Audited>, now: Timestamp) -> Result<(), Error>;
    async fn audit(&self, filter: AuditFilter) -> Result<Vec<AuditEntry>, Error>;

    /// Removes sessions and tickets that are over, and audit entries from before `audit_since`; at most `rows_max` of each.
    async fn prune_people(
        &self,
        now: Timestamp,
        idle_since: Timestamp,
        audit_since: Timestamp,
        rows_max: usize,
    ) -> Result<u64, Error>;
}
