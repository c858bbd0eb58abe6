//! A device's push tokens: what registrations and changes do to them, their rows, and which of them a batch is for.
//!
//! The main token is in columns of `devices`, all others are rows of `push_tokens` (see [`crate::device`]). A transaction
//! that changes rows of a device has locked the device's row.

use std::collections::BTreeMap;

use noroshi_types::{
    AppId, DeviceNum, JsonText, PushEnvironment, PushService, PushToken, Timestamp, TokenKey, TokenKind,
    limits,
};

use super::record::{Record, invalid};
use super::session::{Session, Value, values};
use crate::{Device, DeviceToken, Error, NewToken, RestoreTokens, Suspect, TokenChange};

/// Changes of rows of `push_tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct TokenWrites {
    pub removed: Vec<TokenKey>,
    pub put: Vec<DeviceToken>,
}

impl Device {
    /// The kind of the main token.
    fn main_key(&self) -> Option<TokenKey> {
        self.push_token.as_ref().map(|token| TokenKey::of_messages(token.service))
    }

    /// All tokens, the main one first.
    pub fn all_push_tokens(&self) -> Vec<DeviceToken> {
        self.main_token().into_iter().chain(self.push_tokens.iter().cloned()).collect()
    }

    pub fn main_token(&self) -> Option<DeviceToken> {
        Some(DeviceToken {
            key: self.main_key()?,
            token: self.push_token.clone()?,
            registered_at: self.push_token_at.unwrap_or(self.created_at),
            suspect: self.push_suspect.clone(),
            expires_at: None,
        })
    }

    fn set_main(&mut self, token: Option<DeviceToken>) {
        (self.push_token, self.push_token_at, self.push_suspect) = match token {
            Some(DeviceToken { token, registered_at, suspect, .. }) => {
                (Some(token), Some(registered_at), suspect)
            }
            None => (None, None, None),
        };
    }

    /// Applies `changes`, then `main`: a new main token, or `Some(None)` to remove all message tokens. After an error
    /// the device is in an undefined state.
    #[allow(clippy::option_option)] // absent, null and a value are three different wishes of a PATCH
    pub(super) fn change_tokens(
        &mut self,
        changes: Vec<TokenChange>,
        main: Option<Option<PushToken>>,
        now: Timestamp,
    ) -> Result<TokenWrites, Error> {
        if changes.is_empty() && main.is_none() {
            return Ok(TokenWrites::default());
        }
        let before = self.push_tokens.clone();
        let had = before.len() + usize::from(self.push_token.is_some());
        // Before the limit is checked: an expired token does not count.
        let rows = before.iter().filter(|token| !token.is_expired(now));
        let mut rows: BTreeMap<_, _> = rows.map(|token| (token.key.clone(), token.clone())).collect();
        for change in changes {
            match change {
                TokenChange::Set(new) => self.set_token(&mut rows, new, now),
                TokenChange::Remove(key) => self.remove_token(&mut rows, &key)?,
            }
        }
        match main {
            Some(Some(token)) => {
                let key = TokenKey::of_messages(token.service);
                let new = NewToken { key, token, expires_at: None, only_if_missing: false };
                self.set_token(&mut rows, new, now);
            }
            Some(None) => {
                rows.retain(|key, _| !key.is_message());
                self.set_main(None);
            }
            None => {}
        }
        let count = rows.len() + usize::from(self.push_token.is_some());
        if count > limits::PUSH_TOKENS_PER_DEVICE_MAX && count > had {
            return Err(Error::Limit(format!(
                "a device has at most {} push tokens",
                limits::PUSH_TOKENS_PER_DEVICE_MAX
            )));
        }
        let is_gone = |token: &&DeviceToken| !rows.contains_key(&token.key);
        let removed = before.iter().filter(is_gone).map(|token| token.key.clone()).collect();
        let put = rows.values().filter(|token| !before.contains(token)).cloned().collect();
        self.push_tokens = rows.into_values().collect();
        Ok(TokenWrites { removed, put })
    }

    fn set_token(&mut self, rows: &mut BTreeMap<TokenKey, DeviceToken>, new: NewToken, now: Timestamp) {
        let NewToken { key, token, expires_at, only_if_missing } = new;
        let main = self.main_key();
        let until = now.saturating_add(limits::LIVE_ACTIVITY_TOKEN_TTL);
        let expires_at = expires_at.or_else(|| (key.kind() == TokenKind::LiveActivity).then_some(until));
        if expires_at.is_some_and(|expires_at| expires_at <= now) {
            return;
        }
        if only_if_missing && (main.as_ref() == Some(&key) || rows.contains_key(&key)) {
            return;
        }
        let token = DeviceToken { key, token, registered_at: now, suspect: None, expires_at };
        if !token.key.is_message() {
            rows.insert(token.key.clone(), token);
            return;
        }
        if only_if_missing && main.is_some() {
            // An older token must not displace the main one.
            rows.insert(token.key.clone(), token);
            return;
        }
        if main.as_ref() != Some(&token.key) {
            rows.extend(self.main_token().map(|former| (former.key.clone(), former)));
        }
        rows.remove(&token.key);
        self.set_main(Some(token));
    }

    fn remove_token(
        &mut self,
        rows: &mut BTreeMap<TokenKey, DeviceToken>,
        key: &TokenKey,
    ) -> Result<(), Error> {
        // Older programs may have made a kind the main one that has a row too.
        let row = rows.remove(key).is_some();
        if self.main_key().as_ref() != Some(key) {
            return if row { Ok(()) } else { Err(Error::NotFound) };
        }
        let messages = rows.values().filter(|token| token.key.is_message());
        let next = messages.max_by_key(|token| token.registered_at).map(|token| token.key.clone());
        let next = next.and_then(|key| rows.remove(&key));
        self.set_main(next);
        Ok(())
    }
}

/// The codes of the kinds whose tokens without a name receive ordinary pushes, as a list in a statement.
pub(crate) fn message_kinds() -> String {
    let kinds = TokenKind::ALL.into_iter().filter(|kind| kind.is_message());
    let codes: Vec<_> = kinds.map(|kind| (kind as u8).to_string()).collect();
    format!("({})", codes.join(", "))
}

/// The token of each device that a statement is about: its main token, or that of a kind and name.
pub(crate) struct Pushed<'k> {
    key: Option<&'k TokenKey>,
    /// The numbers of the values, as the statement writes them.
    places: [String; 3],
}

impl<'k> Pushed<'k> {
    /// `mark`: how the statement's values begin; `first`: the number of the first one of [`Self::values`].
    pub(crate) fn new(key: Option<&'k TokenKey>, mark: char, first: usize) -> Self {
        Self { key, places: [0, 1, 2].map(|place| format!("{mark}{}", first + place)) }
    }

    /// Joins the rows of `devices d`.
    pub(crate) fn join(&self) -> String {
        let [kind, name, _] = &self.places;
        match self.key {
            None => String::new(),
            Some(_) => format!(
                " LEFT JOIN push_tokens p ON p.device = d.num AND p.kind = {kind} AND p.name = {name}"
            ),
        }
    }

    /// The token, its service, its environment, when it was registered, since when it is suspect, and when it
    /// expires.
    pub(crate) fn columns(&self) -> [String; 6] {
        let names = ["token", "service", "environment", "token_at", "suspect_at", ""];
        let main = |name: &str| match name {
            "" => "CAST(NULL AS BIGINT)".to_owned(),
            "token" => "d.push_token".to_owned(),
            name => format!("d.push_{name}"),
        };
        let service = &self.places[2];
        names.map(|name| match (self.key, name) {
            (None, name) => main(name),
            // The main token does not expire.
            (Some(_), "") => format!("CASE WHEN d.push_service = {service} THEN NULL ELSE p.expires_at END"),
            (Some(_), name) => {
                let own = if name == "token_at" { "registered_at" } else { name };
                format!("CASE WHEN d.push_service = {service} THEN {} ELSE p.{own} END", main(name))
            }
        })
    }

    /// The kind, the name, and the service whose main token it is; 0 if it is never a main token.
    pub(crate) fn values(&self) -> Vec<Value<'k>> {
        let Some(key) = self.key else { return Vec::new() };
        vec![Value::from(key.kind() as u8), Value::from(key.name()), Value::from(main_service(key))]
    }
}

/// The code of the service whose main token the key names; 0 if it never names a main token.
pub(crate) fn main_service(key: &TokenKey) -> u8 {
    if key.is_message() { key.kind().service() as u8 } else { 0 }
}

/// A batch's token in a column.
pub(crate) fn key_of(row: &(impl Record + ?Sized), column: usize) -> Result<Option<TokenKey>, Error> {
    let key = row.text_or_null(column)?.map(TokenKey::parse).transpose();
    key.map_err(|error| invalid("push token of a batch", error))
}

pub(crate) fn key_text(key: Option<&TokenKey>) -> Option<String> {
    key.map(TokenKey::to_string)
}

/// See [`crate::PushQueue::restore_tokens`]: main tokens first.
pub(crate) async fn restore<S: Session>(
    session: &S,
    app: AppId,
    restore: &RestoreTokens,
) -> Result<Vec<DeviceNum>, S::Error> {
    let RestoreTokens { service, environment, since, reason, tokens_max } = restore;
    let lock = S::FOR_NO_KEY_UPDATE;
    // Devices are locked in the order of every transaction, so the limit applies before.
    let main = format!(
        "WITH picked AS (
             SELECT num FROM devices WHERE app = $1 AND push_suspect_at >= $2 AND push_service = $3
                 AND push_environment = $4 AND ($5 = '' OR push_suspect_reason = $5) LIMIT $6),
         locked AS (SELECT num FROM devices WHERE num IN (SELECT num FROM picked) ORDER BY num {lock})
         UPDATE devices SET push_suspect_at = NULL, push_suspect_reason = NULL
         WHERE num IN (SELECT num FROM locked) AND push_suspect_at IS NOT NULL AND push_service = $3
         RETURNING num"
    );
    let others = format!(
        "WITH picked AS (
             SELECT p.device, p.kind, p.name FROM push_tokens p {join} devices d ON d.num = p.device
             WHERE d.app = $1 AND p.suspect_at >= $2 AND p.service = $3 AND p.environment = $4
                 AND ($5 = '' OR p.suspect_reason = $5) LIMIT $6),
         locked AS (SELECT num FROM devices WHERE num IN (SELECT device FROM picked) ORDER BY num {lock})
         UPDATE push_tokens SET suspect_at = NULL, suspect_reason = NULL
         WHERE device IN (SELECT num FROM locked) AND (device, kind, name) IN (SELECT device, kind, name FROM picked)
         RETURNING device",
        join = S::ORDERED_JOIN
    );
    let reason = reason.as_deref().unwrap_or_default();
    let mut restored = Vec::new();
    for sql in [main, others] {
        let left = tokens_max.saturating_sub(restored.len());
        let values = values![app, *since, *service as u8, *environment as u8, reason, left];
        restored.extend(session.query(&sql, &values, |row| row.device(0)).await?);
    }
    Ok(restored)
}

/// The rows of a device `d` in one column, for [`list_of`]. Neither names nor reasons nor JSON have control characters.
pub(crate) const LIST: &str = "(SELECT string_agg(p.kind || '\u{1f}' || p.name || '\u{1f}' || p.service || '\u{1f}' || \
     p.environment || '\u{1f}' || p.registered_at || '\u{1f}' || coalesce(CAST(p.suspect_at AS TEXT), '') || '\u{1f}' || \
     coalesce(p.suspect_reason, '') || '\u{1f}' || coalesce(CAST(p.expires_at AS TEXT), '') || '\u{1f}' || p.token, \
     '\u{1e}') FROM push_tokens p WHERE p.device = d.num)";

/// The tokens of a column [`LIST`], sorted. Leaves out kinds and services that only a newer program knows.
pub(crate) fn list_of(text: Option<&str>) -> Result<Vec<DeviceToken>, Error> {
    let Some(text) = text else { return Ok(Vec::new()) };
    let mut tokens = Vec::new();
    for row in text.split('\u{1e}') {
        let fields: Vec<&str> = row.splitn(9, '\u{1f}').collect();
        let [kind, name, service, environment, registered_at, suspect_at, reason, expires_at, json] =
            fields.as_slice()
        else {
            return Err(invalid("push token", "a field is missing"));
        };
        let code = |text: &str| text.parse().unwrap_or(u8::MAX);
        let (Some(kind), Some(service)) =
            (TokenKind::from_code(code(kind)), PushService::from_code(code(service)))
        else {
            continue;
        };
        let time =
            |text: &str| text.parse().map(Timestamp).map_err(|error| invalid("time of a push token", error));
        let time_or_none = |text: &str| if text.is_empty() { Ok(None) } else { time(text).map(Some) };
        let suspect = time_or_none(suspect_at)?.map(|at| Suspect { at, reason: (*reason).to_owned() });
        tokens.push(DeviceToken {
            key: TokenKey::new(kind, name).map_err(|error| invalid("name of a push token", error))?,
            token: PushToken {
                service,
                environment: PushEnvironment::from_code(code(environment)).unwrap_or_default(),
                json: JsonText::from_valid(*json),
            },
            registered_at: time(registered_at)?,
            suspect,
            expires_at: time_or_none(expires_at)?,
        });
    }
    tokens.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    Ok(tokens)
}
