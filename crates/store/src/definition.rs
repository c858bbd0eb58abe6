//! What an app defines under a name and what ends: experiments and maintenance notices.
//!
//! The store keeps what its owner wrote as text and knows of it only when it ends. What is over is archived: no call
//! but those that ask for archived ones reads it, so that the cost of the living does not grow with the dead.

use noroshi_types::{AppId, JsonText, Label, Timestamp};

use crate::Error;

/// Values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DefinitionKind {
    Experiment = 1,
    Notice = 2,
}

impl DefinitionKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Experiment => "experiment",
            Self::Notice => "notice",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// For [`Definitions::archived_definitions`].
    pub num: u64,
    pub app: AppId,
    pub kind: DefinitionKind,
    /// Of the live ones of an app and kind each has its own.
    pub name: Label,
    /// Its owner reads it again.
    pub spec: JsonText,
    /// None: it does not by itself.
    pub ends_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub archived_at: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub struct NewDefinition {
    pub app: AppId,
    pub kind: DefinitionKind,
    pub name: Label,
    pub spec: JsonText,
    pub ends_at: Option<Timestamp>,
}

/// Live ones are few and change rarely: callers hold all of them in memory.
#[async_trait::async_trait]
pub trait Definitions: Send + Sync {
    /// All live ones of an app or of all apps, by app, kind and name; some may have ended and not be archived yet.
    async fn live_definitions(&self, app: Option<AppId>) -> Result<Vec<Definition>, Error>;
    /// The live one of the name, else the one that was archived last.
    async fn definition(
        &self,
        app: AppId,
        kind: DefinitionKind,
        name: &Label,
    ) -> Result<Option<Definition>, Error>;
    /// The newest first; those with numbers below `before`.
    async fn archived_definitions(
        &self,
        app: AppId,
        kind: DefinitionKind,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Definition>, Error>;
    /// Makes one, or changes the live one of the name. [`Error::NotFound`] if there is no such app, [`Error::Limit`] if
    /// it has `live_max` live ones of the kind already.
    async fn put_definition(
        &self,
        new: NewDefinition,
        live_max: usize,
        now: Timestamp,
    ) -> Result<Definition, Error>;
    /// [`Error::NotFound`] if no live one has the name.
    async fn archive_definition(
        &self,
        app: AppId,
        kind: DefinitionKind,
        name: &Label,
        now: Timestamp,
    ) -> Result<Definition, Error>;
    /// Archives what ended at `now` or before, at most `rows_max`; how many.
    async fn archive_ended(
        &self,
        kind: DefinitionKind,
        now: Timestamp,
        rows_max: usize,
    ) -> Result<u64, Error>;
}

/// Whether an app may have one more.
pub(crate) fn check_room(kind: DefinitionKind, live: i64, live_max: usize) -> Result<(), Error> {
    let what = match kind {
        DefinitionKind::Experiment => "experiments",
        DefinitionKind::Notice => "maintenance notices",
    };
    match usize::try_from(live).is_ok_and(|live| live < live_max) {
        true => Ok(()),
        false => Err(Error::Limit(format!("an app has at most {live_max} {what} that are not over"))),
    }
}

/// A row as every engine reads it.
pub(crate) struct DefinitionRow {
    pub(crate) num: i64,
    pub(crate) app: AppId,
    pub(crate) kind: u8,
    pub(crate) name: String,
    pub(crate) spec: String,
    pub(crate) ends_at: Option<i64>,
    pub(crate) created_at: i64,
    pub(crate) updated_at: i64,
    pub(crate) archived_at: Option<i64>,
}

impl TryFrom<DefinitionRow> for Definition {
    type Error = Error;

    fn try_from(row: DefinitionRow) -> Result<Self, Error> {
        let wrong = |what: &str| Error::Engine(format!("a stored definition has no usable {what}"));
        let time = |at: i64| Timestamp(at as u64);
        Ok(Self {
            num: row.num as u64,
            app: row.app,
            kind: match row.kind {
                1 => DefinitionKind::Experiment,
                2 => DefinitionKind::Notice,
                _ => return Err(wrong("kind")),
            },
            name: Label::parse(&row.name).map_err(|_| wrong("name"))?,
            spec: JsonText::from_valid(row.spec),
            ends_at: row.ends_at.map(time),
            created_at: time(row.created_at),
            updated_at: time(row.updated_at),
            archived_at: row.archived_at.map(time),
        })
    }
}
