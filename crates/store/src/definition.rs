//! Experiments and maintenance notices: named definitions of an app that may have an end.
//!
//! The store keeps a definition as text that only its owner interprets, and knows when it ends. A definition that has
//! ended is archived. Only the calls for archived ones read those, so that the live ones do not become slower over
//! time.

use noroshi_types::{AppId, JsonText, Label, Timestamp};

use crate::Error;

/// The values are stored.
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
    /// Unique among the live ones of an app and kind.
    pub name: Label,
    /// Only the owner interprets it.
    pub spec: JsonText,
    /// `None`: it has no scheduled end.
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

/// Live definitions are few and change rarely, so callers cache all of them in memory.
#[async_trait::async_trait]
pub trait Definitions: Send + Sync {
    /// All live definitions of an app or of all apps, by app, kind and name. Some may have ended without being
    /// archived yet.
    async fn live_definitions(&self, app: Option<AppId>) -> Result<Vec<Definition>, Error>;
    /// The live definition of the name, else the one that was archived last.
    async fn definition(
        &self,
        app: AppId,
        kind: DefinitionKind,
        name: &Label,
    ) -> Result<Option<Definition>, Error>;
    /// Newest first, with numbers below `before`.
    async fn archived_definitions(
        &self,
        app: AppId,
        kind: DefinitionKind,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Vec<Definition>, Error>;
    /// Creates a definition, or changes the live one of the name. [`Error::NotFound`] if there is no such app,
    /// [`Error::Limit`] if the app has `live_max` live ones of the kind already.
    async fn put_definition(
        &self,
        new: NewDefinition,
        live_max: usize,
        now: Timestamp,
    ) -> Result<Definition, Error>;
    /// [`Error::NotFound`] if no live definition has the name.
    async fn archive_definition(
        &self,
        app: AppId,
        kind: DefinitionKind,
        name: &Label,
        now: Timestamp,
    ) -> Result<Definition, Error>;
    /// Archives definitions that ended at `now` or earlier, at most `rows_max`. Returns how many.
    async fn archive_ended(
        &self,
        kind: DefinitionKind,
        now: Timestamp,
        rows_max: usize,
    ) -> Result<u64, Error>;
}
