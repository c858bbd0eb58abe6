//! From the provider's claims to a person with roles, and to a session.

use noroshi_store::{Error, NewPerson, OpenId, Person, PersonChange};
use noroshi_types::{AppId, Role, Timestamp};

use super::claims::{Email, Identity};
use super::id_token::LEEWAY_S;
use super::pending::{Pending, Purpose};
use super::{
    AppOf, AuthorizationResponse, Callback, Failed, MappedRoles, OpenIdFailure, OpenIdOutcome, Provider,
};
use crate::console::{Client, Console};

impl Console {
    /// The person of a log-in at a provider, or the confirmation of their session. `mapped` is set as soon as roles are stored.
    pub(super) async fn complete(
        &self,
        callback: Callback<'_>,
        response: AuthorizationResponse,
        (app_of, client): (AppOf<'_>, &Client),
        mapped: &mut Option<MappedRoles>,
        now: Timestamp,
    ) -> Result<OpenIdOutcome, Failed> {
        let Callback { live, pending } = callback;
        let identity = live.identify(&pending, response, now).await?;
        let provider = &live.provider;
        let openid = OpenId { issuer: provider.issuer.clone(), subject: identity.subject.clone() };
        match pending.purpose {
            Purpose::LogIn { .. } => {
                let person = self.person_of(provider, &identity, openid, app_of, mapped, now).await?;
                // A provider that remembers a person has not asked for a password now.
                let confirmed_at = identity.auth_time.unwrap_or(Timestamp(0)).min(now);
                let logged_in = self.begin(person, client, confirmed_at, now).await.map_err(refused)?;
                Ok(OpenIdOutcome::LoggedIn(Box::new(logged_in)))
            }
            Purpose::Confirm { session, person } => {
                let found = self.store().person(noroshi_types::PersonId(person)).await?;
                let is_same = found.is_some_and(|person| person.login.openid == Some(openid));
                if !is_same {
                    let detail = "the log-in at the provider is not that of the session's person";
                    return Err(Failed::new(OpenIdFailure::OtherPerson, detail));
                }
                require_recent(&identity, &pending)?;
                match self.store().confirm_session(session, now).await {
                    Err(Error::NotFound) => {
                        Err(Failed::new(OpenIdFailure::NoSession, "the session to confirm ended"))
                    }
                    other => Ok(other.map(|()| OpenIdOutcome::Confirmed)?),
                }
            }
        }
    }

    async fn person_of(
        &self,
        provider: &Provider,
        identity: &Identity,
        openid: OpenId,
        app_of: AppOf<'_>,
        mapped: &mut Option<MappedRoles>,
        now: Timestamp,
    ) -> Result<Person, Failed> {
        let email = identity.email(provider)?;
        let roles = identity.roles(provider, app_of);
        let found = match self.store().person_with_openid(openid.clone()).await? {
            Some(person) => Some(person),
            None => self.linked(provider, &email, openid.clone(), now).await?,
        };
        if found.as_ref().is_some_and(|person| person.disabled_at.is_some()) {
            return Err(Failed::new(OpenIdFailure::Disabled, "the person is disabled"));
        }
        let id = match &found {
            Some(person) => person.id,
            None if roles.is_empty() => return Err(no_role()),
            None => self.created(identity, &email, openid, now).await?.id,
        };
        let after = self.mapped_roles(id, roles).await?;
        let has_role = !after.roles.is_empty();
        *mapped = Some(MappedRoles { before: found, after: after.clone() });
        if has_role { Ok(after) } else { Err(no_role()) }
    }

    /// An app that was deleted meanwhile must not fail the log-in for ever: the next one does not map to it.
    async fn mapped_roles(
        &self,
        id: noroshi_types::PersonId,
        roles: Vec<(Option<AppId>, Role)>,
    ) -> Result<Person, Failed> {
        self.store().map_roles(id, roles).await.map_err(|error| match error {
            Error::NotFound => {
                Failed::new(OpenIdFailure::Failed, "the person or an app was deleted meanwhile")
            }
            error => error.into(),
        })
    }

    /// The person with the same address, as before the link, if the operator wants them to be the same.
    async fn linked(
        &self,
        provider: &Provider,
        email: &Email,
        openid: OpenId,
        now: Timestamp,
    ) -> Result<Option<Person>, Failed> {
        let Some(person) = self.store().person_with_email(&email.address).await? else { return Ok(None) };
        let may_link = provider.links_by_email && email.is_verified && person.login.openid.is_none();
        if !may_link {
            let detail = "another person has the address, and this log-in may not take it over";
            return Err(Failed::new(OpenIdFailure::EmailTaken, detail));
        }
        if person.disabled_at.is_some() {
            return Ok(Some(person));
        }
        let change = PersonChange { openid: Some(openid), ..PersonChange::default() };
        self.store().change_person(person.id, change, now).await?;
        Ok(Some(person))
    }

    async fn created(
        &self,
        identity: &Identity,
        email: &Email,
        openid: OpenId,
        now: Timestamp,
    ) -> Result<Person, Failed> {
        let address = email.address.clone();
        let new = NewPerson {
            name: identity.name(&address),
            email: address,
            password: None,
            openid: Some(openid.clone()),
            roles: Vec::new(),
        };
        match self.store().create_person(new, now).await {
            // Another log-in of the person was faster.
            Err(Error::Exists) => {
                let found = self.store().person_with_openid(openid).await?;
                found.ok_or_else(|| Failed::new(OpenIdFailure::EmailTaken, "another person has the address"))
            }
            created => Ok(created?),
        }
    }
}

fn no_role() -> Failed {
    Failed::new(OpenIdFailure::NoRole, "no mapping gives the person a role")
}

/// OpenID Connect Core 1.0 §3.1.2.1: with `max_age`, the ID token has `auth_time`.
fn require_recent(identity: &Identity, pending: &Pending) -> Result<(), Failed> {
    let leeway_ms = (LEEWAY_S * 1_000.0) as u64;
    match identity.auth_time {
        Some(at) if at.0.saturating_add(leeway_ms) >= pending.started_at => Ok(()),
        Some(_) => Err(Failed::new(OpenIdFailure::NotRecent, "the log-in at the provider is an earlier one")),
        None => Err(Failed::new(OpenIdFailure::NotRecent, "the ID token has no `auth_time`")),
    }
}

fn refused(error: crate::Refused) -> Failed {
    Failed::new(OpenIdFailure::Failed, error)
}
