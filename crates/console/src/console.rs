//! What a handler calls. A [`Caller`] is a person with a session; every method that changes something takes one, or proof of
//! who the person is.

mod openid;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use noroshi_egress::Egress;
use noroshi_store::{
    Error, NewPerson, NewPersonSession, NewTicket, Person, PersonChange, PersonSession, Store, Ticket,
    TicketPurpose, TotpChange,
};
use noroshi_types::{AppId, Permission, Permissions, PersonId, Role, Timestamp};

use crate::attempts::{Attempt, Attempts};
use crate::error::Refused;
use crate::password::Passwords;
use crate::token::{self, Tickets};
use crate::totp::{self, Seal};

pub use openid::{
    AppOf, AppRef, AuthorizationResponse, Finished, MappedRoles, Mapping, OPENID_ROUTES, OpenIdFailure,
    OpenIdOutcome, PENDING_LIFETIME, Provider, StartFor, Started,
};
use openid::{OpenIds, Seal as OpenIdSeal};

/// NIST SP 800-63B-4 §3.1.1.2: at least 15 characters where the password is the only factor. Long ones cost more to hash.
pub const PASSWORD_BYTES: std::ops::RangeInclusive<usize> = 15..=256;
const NAME_BYTES_MAX: usize = 100;
/// RFC 5321 §4.5.3.1.3, without the angle brackets.
const EMAIL_BYTES_MAX: usize = 254;
const ADDRESS_BYTES_MAX: usize = 64;
const AGENT_BYTES_MAX: usize = 200;

/// How long after a log-in, or its confirmation, a dangerous action is allowed.
const CONFIRMED_FOR: Duration = Duration::from_secs(600);
const TICKET_LIFETIME: Duration = Duration::from_secs(300);
const INVITATION_LIFETIME: Duration = Duration::from_secs(7 * 86_400);
/// A session is marked as used this often at most.
const TOUCH_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// A session ends when it is not used for this long.
    pub session_idle: Duration,
    /// A session ends this long after its log-in.
    pub session_max: Duration,
    /// How long the audit log is kept.
    pub audit_retention: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            session_idle: Duration::from_secs(12 * 3_600),
            session_max: Duration::from_secs(7 * 86_400),
            audit_retention: Duration::from_secs(400 * 86_400),
        }
    }
}

/// Where a request comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    pub address: String,
    /// By which limits count.
    pub network: String,
    /// The header `User-Agent`.
    pub agent: String,
}

/// What made the page send a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    ByPerson,
    /// The page repeats a request while nobody uses it.
    InBackground,
}

/// A person with a session.
#[derive(Debug, Clone)]
pub struct Caller {
    pub person: Person,
    pub session: PersonSession,
}

/// A new session.
#[derive(Debug)]
pub struct LoggedIn {
    /// For the cookie.
    pub token: String,
    pub caller: Caller,
}

/// The result of a correct password.
#[derive(Debug)]
pub enum Step {
    LoggedIn(Box<LoggedIn>),
    /// A code is needed, together with this ticket.
    Code {
        ticket: String,
    },
}

/// How a person shows again who they are.
#[derive(Debug)]
pub enum Proof {
    Password(String),
    /// Of the authenticator app, or a recovery code.
    Code(String),
}

#[derive(Debug)]
pub struct TotpSetup {
    /// In base32.
    pub secret: String,
    /// For a QR code.
    pub uri: String,
}

/// A ticket and its token, which is shown once.
#[derive(Debug)]
pub struct Invitation {
    pub ticket: Ticket,
    pub token: String,
}

impl Caller {
    /// In one app, or in no app in particular.
    pub fn permissions(&self, app: Option<AppId>) -> Permissions {
        let applies = |of: &Option<AppId>| of.is_none() || *of == app;
        let roles = self.person.roles.iter().filter(|(of, _)| applies(of));
        roles.fold(Permissions::default(), |all, (_, role)| all.and(role.permissions()))
    }

    pub fn require(&self, app: Option<AppId>, permission: Permission) -> Result<(), Refused> {
        match self.permissions(app).contains(permission) {
            true => Ok(()),
            false => Err(Refused::Lacks(permission)),
        }
    }

    pub fn confirmed_until(&self) -> Timestamp {
        self.session.confirmed_at.saturating_add(CONFIRMED_FOR)
    }

    /// For a dangerous action.
    pub fn require_confirmed(&self, now: Timestamp) -> Result<(), Refused> {
        match now < self.confirmed_until() {
            true => Ok(()),
            false => Err(Refused::NotConfirmed(CONFIRMED_FOR)),
        }
    }
}

/// Shared by both listeners.
pub struct Console {
    store: Arc<dyn Store>,
    config: Config,
    passwords: Passwords,
    pub(crate) attempts: Attempts,
    tickets: Tickets,
    /// `None`: the node has no key, so nobody can set up an authenticator app.
    seal: Option<Seal>,
    pub(crate) openids: OpenIds,
}

impl Console {
    /// `key` seals the secrets of authenticator apps.
    pub async fn open(store: Arc<dyn Store>, config: Config, key: Option<[u8; 32]>) -> Result<Self, Error> {
        let fresh = token::random::<32>().to_vec();
        let tickets = Tickets::new(&store.secret("console-ticket-key", fresh).await?);
        let seal = key.as_ref().map(Seal::new);
        let openids = OpenIds::none();
        Ok(Self {
            store,
            config,
            passwords: Passwords::new(),
            attempts: Attempts::new(),
            tickets,
            seal,
            openids,
        })
    }

    /// Log-in with these providers. `url` is the origin at which browsers reach the console.
    pub async fn with_openid(
        mut self,
        providers: Vec<Provider>,
        url: &str,
        egress: &Arc<Egress>,
    ) -> Result<Self, Error> {
        if !providers.is_empty() {
            let fresh = token::random::<32>().to_vec();
            let key = self.store.secret("console-openid-key", fresh).await?;
            let key = token::hash_of(&key);
            self.openids = OpenIds::new(providers, url, egress, OpenIdSeal::new(&key));
        }
        Ok(self)
    }

    pub fn store(&self) -> &dyn Store {
        &*self.store
    }

    fn idle_since(&self, now: Timestamp) -> Timestamp {
        before(now, self.config.session_idle)
    }

    pub async fn log_in(
        &self,
        email: &str,
        password: String,
        client: &Client,
        now: Timestamp,
    ) -> Result<Step, Refused> {
        let email = email.to_lowercase();
        let attempt = Attempt { account: token::hash(&email), network: client.network.clone() };
        wait(self.attempts.wait(&attempt, now))?;
        if email.len() > EMAIL_BYTES_MAX || password.len() > *PASSWORD_BYTES.end() {
            return Err(Refused::LogIn);
        }
        let person = self.store.person_with_email(&email).await?.filter(can_log_in);
        let hash = person.as_ref().and_then(|person| person.login.password.clone());
        let is_right = self.passwords.verify(hash, password).await?;
        let Some(person) = person.filter(|_| is_right) else {
            self.attempts.failed(attempt, now);
            return Err(Refused::LogIn);
        };
        if person.login.totp_is_on {
            let until = now.saturating_add(TICKET_LIFETIME);
            let ticket = self.tickets.issue(person.id, person.login.password.as_deref(), until);
            return Ok(Step::Code { ticket });
        }
        let logged_in = self.begin_with_password(person, client, now).await?.ok_or(Refused::LogIn)?;
        Ok(Step::LoggedIn(Box::new(logged_in)))
    }

    /// The second step of [`Self::log_in`].
    pub async fn log_in_with_code(
        &self,
        ticket: &str,
        code: &str,
        client: &Client,
        now: Timestamp,
    ) -> Result<LoggedIn, Refused> {
        let ticket = self.tickets.open(ticket, now).ok_or(Refused::Ticket)?;
        let person = self.store.person(ticket.person).await?.filter(can_log_in);
        let person = person.filter(|person| ticket.is_for(person.login.password.as_deref()));
        let person = person.ok_or(Refused::Ticket)?;
        self.check_code(&person, code, now).await?;
        self.begin_with_password(person, client, now).await?.ok_or(Refused::Ticket)
    }

    /// A session for a person whose password was right when it was read. `None`: it changed meanwhile. A change after this
    /// check ends the session.
    async fn begin_with_password(
        &self,
        person: Person,
        client: &Client,
        now: Timestamp,
    ) -> Result<Option<LoggedIn>, Refused> {
        let proved = person.login.password.clone();
        let logged_in = self.begin(person, client, now, now).await?;
        let Caller { person, session } = &logged_in.caller;
        let present = self.store.person(person.id).await?.and_then(|person| person.login.password);
        if present == proved {
            return Ok(Some(logged_in));
        }
        self.store.end_session(person.id, session.id).await?;
        Ok(None)
    }

    /// With a link that another person, or the operator, made.
    pub async fn log_in_with_link(
        &self,
        link: &str,
        client: &Client,
        now: Timestamp,
    ) -> Result<LoggedIn, Refused> {
        let hash = token::hash(link);
        // Read first, so that a guess costs no write and an invitation is not used up.
        let found = self.store.ticket(hash, now).await?.map(|ticket| ticket.purpose);
        let Some(TicketPurpose::LogIn(id)) = found else { return Err(Refused::Link) };
        self.store.take_ticket(hash, now).await?.ok_or(Refused::Link)?;
        let person = self.store.person(id).await?.filter(can_log_in).ok_or(Refused::Link)?;
        self.begin(person, client, now, now).await
    }

    /// `confirmed_at`: when the person proved who they are.
    pub(crate) async fn begin(
        &self,
        person: Person,
        client: &Client,
        confirmed_at: Timestamp,
        now: Timestamp,
    ) -> Result<LoggedIn, Refused> {
        let (token, hash) = token::fresh();
        let session = NewPersonSession {
            hash,
            person: person.id,
            confirmed_at,
            expires_at: now.saturating_add(self.config.session_max),
            address: cut(&client.address, ADDRESS_BYTES_MAX),
            agent: cut(&client.agent, AGENT_BYTES_MAX),
        };
        let session = self.store.create_session(session, now).await?;
        Ok(LoggedIn { token, caller: Caller { person, session } })
    }

    /// Who has this session token. Only a request that a person made keeps the session from becoming idle.
    pub async fn caller(&self, session_token: &str, made: Made, now: Timestamp) -> Result<Caller, Refused> {
        if session_token.len() != token::SESSION_TOKEN_CHARS {
            return Err(Refused::Session);
        }
        let hash = token::hash(session_token);
        let found = self.store.person_session(hash, self.idle_since(now), now).await?;
        let (session, person) = found.ok_or(Refused::Session)?;
        if made == Made::ByPerson && now.saturating_since(session.seen_at) >= TOUCH_EVERY {
            self.store.touch_session(session.id, now).await?;
        }
        Ok(Caller { person, session })
    }

    pub async fn log_out(&self, caller: &Caller) -> Result<(), Refused> {
        Ok(self.store.end_session(caller.person.id, caller.session.id).await?)
    }

    pub async fn sessions(&self, caller: &Caller, now: Timestamp) -> Result<Vec<PersonSession>, Refused> {
        Ok(self.store.person_sessions(caller.person.id, self.idle_since(now), now).await?)
    }

    /// Allows dangerous actions again for some minutes.
    pub async fn confirm(
        &self,
        caller: &mut Caller,
        proof: Proof,
        client: &Client,
        now: Timestamp,
    ) -> Result<(), Refused> {
        let person = &caller.person;
        match proof {
            Proof::Password(password) => self.check_password(person, password, client, now).await?,
            Proof::Code(code) if person.login.totp_is_on => self.check_code(person, &code, now).await?,
            Proof::Code(_) => return Err(Refused::Code),
        }
        self.store.confirm_session(caller.session.id, now).await?;
        caller.session.confirmed_at = now;
        Ok(())
    }

    async fn check_password(
        &self,
        person: &Person,
        password: String,
        client: &Client,
        now: Timestamp,
    ) -> Result<(), Refused> {
        let attempt = Attempt { account: token::hash(&person.email), network: client.network.clone() };
        wait(self.attempts.wait(&attempt, now))?;
        if self.passwords.verify(person.login.password.clone(), password).await? {
            return Ok(());
        }
        self.attempts.failed(attempt, now);
        Err(Refused::LogIn)
    }

    async fn check_code(&self, person: &Person, code: &str, now: Timestamp) -> Result<(), Refused> {
        wait(self.attempts.wait_for_code(person.id.0, now))?;
        let is_right = match totp::recovery_hash(code) {
            Some(hash) => self.store.use_recovery_code(person.id, hash).await?,
            None => match totp::step_of(self.secret_of(person)?, code, now) {
                Some(step) => self.store.use_totp(person.id, step).await?,
                None => false,
            },
        };
        if !is_right {
            self.attempts.code_failed(person.id.0, now);
            return Err(Refused::Code);
        }
        Ok(())
    }

    fn secret_of(&self, person: &Person) -> Result<Vec<u8>, Refused> {
        const UNREADABLE: Refused = Refused::State(
            "the secret of the authenticator app was sealed with another key (push.key_file); use a recovery code",
        );
        let sealed = person.login.totp.as_deref().ok_or(Refused::Code)?;
        self.seal.as_ref().and_then(|seal| seal.open(person.id, sealed)).ok_or(UNREADABLE)
    }

    /// Ends all other sessions of the person. A person without a password has to have confirmed the session instead.
    pub async fn change_password(
        &self,
        caller: &Caller,
        current: Option<String>,
        new: String,
        client: &Client,
        now: Timestamp,
    ) -> Result<(), Refused> {
        let person = &caller.person;
        check_password_rules(&new, &person.email)?;
        match (&person.login.password, current) {
            (None, _) => caller.require_confirmed(now)?,
            (Some(_), Some(current)) => self.check_password(person, current, client, now).await?,
            (Some(_), None) => return Err(Refused::LogIn),
        }
        let password = Some(self.passwords.hash(new).await?);
        let change = PersonChange { password, ..PersonChange::default() };
        self.store.change_person(person.id, change, now).await?;
        self.store.end_other_sessions(person.id, Some(caller.session.id)).await?;
        Ok(())
    }

    /// A new secret, which is off until [`Self::turn_on_totp`].
    pub async fn begin_totp(&self, caller: &Caller, now: Timestamp) -> Result<TotpSetup, Refused> {
        caller.require_confirmed(now)?;
        let seal = self.seal.as_ref().ok_or(Refused::State(
            "the node has no key to seal the secret of an authenticator app: the operator must set push.key_file",
        ))?;
        if caller.person.login.totp_is_on {
            return Err(Refused::State("an authenticator app is set up already; turn it off first"));
        }
        let (secret, sealed) = seal.fresh_secret(caller.person.id);
        self.change_totp(caller, TotpChange::Secret(sealed), now).await?;
        let (secret, uri) = totp::setup(secret, &caller.person.email);
        Ok(TotpSetup { secret, uri })
    }

    /// Returns the recovery codes, which are shown once.
    pub async fn turn_on_totp(
        &self,
        caller: &Caller,
        code: &str,
        now: Timestamp,
    ) -> Result<Vec<String>, Refused> {
        if caller.person.login.totp_is_on {
            return Err(Refused::State("an authenticator app is set up already"));
        }
        wait(self.attempts.wait_for_code(caller.person.id.0, now))?;
        let Some(step) = totp::step_of(self.secret_of(&caller.person)?, code, now) else {
            self.attempts.code_failed(caller.person.id.0, now);
            return Err(Refused::Code);
        };
        let (codes, recovery) = totp::recovery_codes();
        self.change_totp(caller, TotpChange::On { step, recovery }, now).await?;
        Ok(codes)
    }

    pub async fn turn_off_totp(&self, caller: &Caller, now: Timestamp) -> Result<(), Refused> {
        caller.require_confirmed(now)?;
        self.change_totp(caller, TotpChange::Off, now).await
    }

    async fn change_totp(&self, caller: &Caller, totp: TotpChange, now: Timestamp) -> Result<(), Refused> {
        let change = PersonChange { totp: Some(totp), ..PersonChange::default() };
        self.store.change_person(caller.person.id, change, now).await?;
        Ok(())
    }

    /// `by`: `None` for the operator's token.
    pub async fn invite(
        &self,
        by: Option<PersonId>,
        email: &str,
        roles: Vec<(Option<AppId>, Role)>,
        now: Timestamp,
    ) -> Result<Invitation, Refused> {
        let email = check_email(email)?;
        if self.store.person_with_email(&email).await?.is_some() {
            return Err(Error::Exists.into());
        }
        self.issue(TicketPurpose::Invitation { email, roles }, by, INVITATION_LIFETIME, now).await
    }

    /// A link that logs the person in once.
    pub async fn link(
        &self,
        by: Option<PersonId>,
        person: PersonId,
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<Invitation, Refused> {
        self.store.person(person).await?.ok_or(Error::NotFound)?;
        self.issue(TicketPurpose::LogIn(person), by, lifetime, now).await
    }

    async fn issue(
        &self,
        purpose: TicketPurpose,
        created_by: Option<PersonId>,
        lifetime: Duration,
        now: Timestamp,
    ) -> Result<Invitation, Refused> {
        let (token, hash) = token::fresh();
        let ticket = NewTicket { hash, purpose, created_by, expires_at: now.saturating_add(lifetime) };
        Ok(Invitation { ticket: self.store.create_ticket(ticket, now).await?, token })
    }

    /// Creates the person whom an invitation names, and logs them in.
    pub async fn accept_invitation(
        &self,
        invitation: &str,
        name: &str,
        password: String,
        client: &Client,
        now: Timestamp,
    ) -> Result<LoggedIn, Refused> {
        let hash = token::hash(invitation);
        let found = self.store.ticket(hash, now).await?.map(|ticket| ticket.purpose);
        let Some(TicketPurpose::Invitation { email, roles }) = found else { return Err(Refused::Link) };
        let roles = self.present(roles).await?;
        let name = check_name(name)?;
        check_password_rules(&password, &email)?;
        let password = Some(self.passwords.hash(password).await?);
        // Taken only now, so that a mistake above does not use it up.
        self.store.take_ticket(hash, now).await?.ok_or(Refused::Link)?;
        let new = NewPerson { email, name, password, openid: None, roles };
        let person = self.store.create_person(new, now).await?;
        self.begin(person, client, now, now).await
    }

    /// The roles of an invitation in apps that still exist.
    async fn present(
        &self,
        roles: Vec<(Option<AppId>, Role)>,
    ) -> Result<Vec<(Option<AppId>, Role)>, Refused> {
        if roles.iter().all(|(app, _)| app.is_none()) {
            return Ok(roles);
        }
        let apps: HashSet<AppId> = self.store.apps().await?.into_iter().map(|app| app.id).collect();
        let exists = |app: &Option<AppId>| app.is_none_or(|app| apps.contains(&app));
        let present: Vec<_> = roles.into_iter().filter(|(app, _)| exists(app)).collect();
        if present.is_empty() { Err(Refused::Link) } else { Ok(present) }
    }

    /// The person of this address, made an owner of all apps if there is none. For a development node.
    pub async fn development_owner(&self, email: &str, now: Timestamp) -> Result<PersonId, Refused> {
        if let Some(person) = self.store.person_with_email(email).await? {
            return Ok(person.id);
        }
        let new = NewPerson {
            email: email.to_owned(),
            name: "Developer".to_owned(),
            password: None,
            openid: None,
            roles: vec![(None, Role::Owner)],
        };
        Ok(self.store.create_person(new, now).await?.id)
    }

    /// Removes what is over. The leader calls it now and then.
    pub async fn prune(&self, now: Timestamp, rows_max: usize) -> Result<u64, Error> {
        let audit_since = before(now, self.config.audit_retention);
        self.store.prune_people(now, self.idle_since(now), audit_since, rows_max).await
    }
}

fn before(now: Timestamp, duration: Duration) -> Timestamp {
    Timestamp(now.0.saturating_sub(duration.as_millis() as u64))
}

fn can_log_in(person: &Person) -> bool {
    person.disabled_at.is_none()
}

pub(crate) fn wait(retry_after: Duration) -> Result<(), Refused> {
    match retry_after.is_zero() {
        true => Ok(()),
        false => Err(Refused::TooMany { retry_after }),
    }
}

/// The address in lower case, in which providers of e-mail make no difference.
pub fn check_email(text: &str) -> Result<String, Refused> {
    let email = text.to_lowercase();
    let (local, domain) = email.rsplit_once('@').unwrap_or_default();
    let fits = !local.is_empty()
        && !domain.is_empty()
        && email.len() <= EMAIL_BYTES_MAX
        && !email.chars().any(|c| c.is_control() || c.is_whitespace());
    match fits {
        true => Ok(email),
        false => {
            let rule = format!("must be an e-mail address of at most {EMAIL_BYTES_MAX} bytes");
            Err(Refused::invalid("email", rule))
        }
    }
}

pub fn check_name(text: &str) -> Result<String, Refused> {
    let name = text.trim();
    match (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control) {
        true => Ok(name.to_owned()),
        false => {
            let rule = format!("must be 1 to {NAME_BYTES_MAX} bytes long, without control characters");
            Err(Refused::invalid("name", rule))
        }
    }
}

fn check_password_rules(password: &str, email: &str) -> Result<(), Refused> {
    if !PASSWORD_BYTES.contains(&password.len()) {
        let (min, max) = PASSWORD_BYTES.into_inner();
        return Err(Refused::invalid("password", format!("must be {min} to {max} bytes long")));
    }
    let mut chars = password.chars();
    let first = chars.next();
    if password.to_lowercase() == email || chars.all(|c| Some(c) == first) {
        return Err(Refused::invalid("password", "must not be the e-mail address or one repeated character"));
    }
    Ok(())
}

/// At most this many bytes, of whole characters.
fn cut(text: &str, bytes_max: usize) -> String {
    text[..text.floor_char_boundary(bytes_max)].to_owned()
}

#[cfg(test)]
mod tests;
