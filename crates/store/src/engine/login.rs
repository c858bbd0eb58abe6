//! Log-ins: what is decided of one before its backlog is read.

use std::collections::HashSet;
use std::sync::LazyLock;

use noroshi_types::{DeviceNum, Topic, UserId, limits};

use super::device::user_of;
use super::preferences::{OWN, followed_of_row};
use super::record::Record;
use super::session::{Session, values};
use crate::{
    ENDED_STATE_PREFIX, Error, Followed, LoggedIn, Login, LoginRefused, Recheck, Rechecked, Registration,
    Revocation,
};

/// The answer to a log-in after one read.
pub(crate) enum Answer {
    Settled(Result<Box<LoggedIn>, LoginRefused>),
    /// The device must be created or changed first.
    Change,
}

impl Answer {
    pub(crate) fn is_change(&self) -> bool {
        matches!(self, Self::Change)
    }

    /// A device that still needs a change after it was changed was deleted in between.
    pub(crate) fn settled(self) -> Result<LoggedIn, LoginRefused> {
        match self {
            Self::Settled(result) => result.map(|logged_in| *logged_in),
            Self::Change => Err(LoginRefused::Revoked),
        }
    }
}

/// The device of a log-in.
pub(crate) struct LoginDevice {
    pub num: DeviceNum,
    pub user: Option<UserId>,
    pub token_version: u32,
    pub revision: u64,
    pub kept: Option<Vec<u8>>,
    pub followed: Followed,
}

/// Columns of `devices d` for [`LoginDevice::of_row`].
pub(crate) static COLUMNS: LazyLock<String> =
    LazyLock::new(|| format!("d.num, d.\"user\", d.token_version, d.revision, d.kept, d.timezone, {OWN}"));
/// How many they are.
pub(crate) const COLUMN_COUNT: usize = 8;

impl LoginDevice {
    pub(crate) fn of_row(row: &(impl Record + ?Sized), first: usize) -> Result<Self, Error> {
        Ok(Self {
            num: row.device(first)?,
            user: user_of(row, first + 1)?,
            token_version: row.int(first + 2)? as u32,
            revision: row.count(first + 3)?,
            kept: row.bytes_or_null(first + 4)?.map(<[u8]>::to_vec),
            followed: followed_of_row(row, first + 5)?,
        })
    }
}

pub(crate) enum Decision {
    Refused(LoginRefused),
    /// The device must be created or changed first.
    Change,
    /// The backlog is read, also of these session topics that the device does not durably subscribe to.
    Read(Vec<Topic>),
}

/// `durable` are the topics of the device's durable subscriptions, `$everyone` among them.
pub(crate) fn decide<'t>(
    login: &Login,
    device: Option<&LoginDevice>,
    revoked: Revocation,
    durable: impl Iterator<Item = &'t Topic>,
) -> Decision {
    if login.topics.len() + login.session_topics.len() > 2 * limits::TOPICS_PER_DEVICE_MAX {
        return Decision::Refused(LoginRefused::TooManyTopics);
    }
    let outdated =
        |device: &LoginDevice| login.token_version.is_some_and(|version| version < device.token_version);
    if login.issued.is_revoked(revoked.latest(), login.now) || device.map_or(!login.create, outdated) {
        return Decision::Refused(LoginRefused::Revoked);
    }
    if login.topics.is_empty() && login.session_topics.is_empty() {
        let other_user = device.is_some_and(|it| login.user.is_some() && login.user != it.user);
        // $everyone does not count.
        return if durable.count().saturating_sub(1) > limits::TOPICS_PER_DEVICE_MAX {
            Decision::Refused(LoginRefused::TooManyTopics)
        } else if device.is_none() || login.create && other_user {
            Decision::Change
        } else {
            Decision::Read(Vec::new())
        };
    }
    let durable: HashSet<&Topic> = durable.collect();
    let is_new = |topic: &&Topic| !durable.contains(topic) && !topic.is_everyone();
    let new: HashSet<&Topic> = login.topics.iter().chain(&login.session_topics).filter(is_new).collect();
    // $everyone is among the durable ones and does not count.
    if durable.len().saturating_sub(1) + new.len() > limits::TOPICS_PER_DEVICE_MAX {
        return Decision::Refused(LoginRefused::TooManyTopics);
    }
    let Some(device) = device else { return Decision::Change };
    let other_user = login.user.is_some() && login.user != device.user;
    if login.create && (other_user || login.topics.iter().any(|topic| is_new(&topic))) {
        return Decision::Change;
    }
    let session: HashSet<&Topic> = login.session_topics.iter().filter(is_new).collect();
    Decision::Read(session.into_iter().cloned().collect())
}

/// The registration that creates or changes the device of a log-in.
pub(crate) fn registration(login: &Login) -> Registration {
    Registration {
        device: Some(login.device.clone()),
        user: login.user.clone(),
        topics: login.topics.clone(),
        issued: login.issued,
        ..Registration::default()
    }
}

/// `revision` is `None` for a device that was deleted; `newer`: its inbox has rows after the place.
pub(crate) fn rechecked(check: &Recheck, revision: Option<u64>, newer: bool) -> Rechecked {
    match revision {
        None => Rechecked::Changed,
        Some(revision) if check.revision.is_some_and(|known| known != revision) => Rechecked::Changed,
        Some(_) if newer => Rechecked::Newer,
        Some(_) => Rechecked::Same,
    }
}

/// See [`crate::Sessions::keep_session`].
pub(crate) async fn keep<S: Session>(
    session: &S,
    device: DeviceNum,
    kept: Option<&Vec<u8>>,
) -> Result<(), S::Error> {
    let Some(kept) = kept else {
        session.execute("UPDATE devices SET kept = NULL WHERE num = $1", &values![device.0]).await?;
        return Ok(());
    };
    let sql = "UPDATE devices SET kept = $2 WHERE num = $1 AND (kept IS NULL OR substr(kept, 1, 1) <> $3)";
    session.execute(sql, &values![device.0, kept, &[ENDED_STATE_PREFIX]]).await?;
    Ok(())
}
