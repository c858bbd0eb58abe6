//! What a campaign's row has for drafts, and the request as it was written.

use noroshi_types::JsonText;

use super::record::{Record, invalid};
use super::session::{Session, values};
use crate::{DraftState, Error, NewCampaign};

/// Of `campaigns`, after those that the campaign itself has.
pub(crate) const COLUMNS: &str =
    "revision, complete, created_by, edited_by, edited_at, approved_by, approved_at, authors";

const AUTHORS_MAX: usize = 100;

/// Reads [`COLUMNS`] from column `first` on.
pub(crate) fn state(row: &(impl Record + ?Sized), first: usize) -> Result<DraftState, Error> {
    let approved = match row.time_or_null(first + 6)? {
        Some(at) => Some((row.string(first + 5)?, at)),
        None => None,
    };
    let (created_by, edited_by) = (row.string(first + 2)?, row.string(first + 3)?);
    let authors = serde_json::from_str(row.text(first + 7)?).map_err(|error| invalid("authors", error))?;
    // Those of an older program are in these columns only.
    let authors = with_author(with_author(authors, &created_by), &edited_by);
    Ok(DraftState {
        revision: row.count(first)?,
        is_complete: row.flag(first + 1)?,
        created_by,
        edited_by,
        edited_at: row.time_or_null(first + 4)?,
        approved,
        authors,
    })
}

fn with_author(mut authors: Vec<String>, by: &str) -> Vec<String> {
    if !by.is_empty() && !authors.iter().any(|author| author == by) {
        authors.push(by.to_owned());
    }
    authors
}

/// The authors of a draft that `by` changes, as its column has them.
pub(super) fn authors(draft: DraftState, by: &str) -> Result<String, Error> {
    let authors = with_author(draft.authors, by);
    if authors.len() > AUTHORS_MAX {
        let detail = format!("a campaign has at most {AUTHORS_MAX} authors: create another campaign");
        return Err(Error::Limit(detail));
    }
    serde_json::to_string(&authors).map_err(|error| invalid("authors", error))
}

/// Writes what a new campaign has besides what is sent.
pub(crate) async fn create<S: Session>(session: &S, num: i64, new: &NewCampaign) -> Result<(), S::Error> {
    let draft = &new.draft;
    let sql = "UPDATE campaigns SET name = $2, start_at = $3, complete = $4, created_by = $5, edited_by = $5 WHERE num = $1";
    let by = &draft.by;
    session.execute(sql, &values![num, &draft.name, draft.start_at, draft.is_complete, by]).await?;
    define(session, num, draft.definition.as_ref()).await
}

pub(super) async fn define<S: Session>(
    session: &S,
    num: i64,
    definition: Option<&JsonText>,
) -> Result<(), S::Error> {
    if let Some(definition) = definition {
        let sql = "INSERT INTO campaign_definitions (campaign, definition) VALUES ($1, $2)
                   ON CONFLICT (campaign) DO UPDATE SET definition = excluded.definition";
        session.execute(sql, &values![num, definition.as_str()]).await?;
    }
    Ok(())
}
