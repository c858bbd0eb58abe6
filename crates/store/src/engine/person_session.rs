//! Sessions of people as rows.

use noroshi_types::{PersonId, Timestamp, limits};

use super::person;
use super::record::Record;
use super::session::{self, Session, values};
use crate::{Error, NewPersonSession, Person, PersonSession, TokenHash};

const COLUMNS: &str = "id, person, created_at, seen_at, confirmed_at, expires_at, address, agent";

fn session_of(row: &dyn Record) -> Result<PersonSession, Error> {
    Ok(PersonSession {
        id: row.count(0)?,
        person: PersonId(row.count(1)?),
        created_at: row.time(2)?,
        seen_at: row.time(3)?,
        confirmed_at: row.time(4)?,
        expires_at: row.time(5)?,
        address: row.string(6)?,
        agent: row.string(7)?,
    })
}

pub(crate) async fn create<S: Session>(
    session: &S,
    new: &NewPersonSession,
    now: Timestamp,
) -> Result<PersonSession, S::Error> {
    let person = new.person.0 as i64;
    // Locked, so that nobody disables the person meanwhile.
    let lock = S::FOR_NO_KEY_UPDATE;
    let sql = format!("SELECT id FROM people WHERE id = $1 AND disabled_at IS NULL {lock}");
    session::first(session, &sql, &values![person], |row| row.int(0)).await?.ok_or(Error::NotFound)?;
    let sql = "DELETE FROM person_sessions WHERE id IN (
                   SELECT id FROM person_sessions WHERE person = $1 ORDER BY id DESC LIMIT 1000 OFFSET $2)";
    session.execute(sql, &values![person, limits::SESSIONS_OF_A_PERSON_MAX - 1]).await?;
    let sql = format!(
        "INSERT INTO person_sessions (hash, person, created_at, seen_at, confirmed_at, expires_at, address, agent)
         VALUES ($1, $2, $3, $3, $7, $4, $5, $6) RETURNING {COLUMNS}"
    );
    let values = values![&new.hash, person, now, new.expires_at, &new.address, &new.agent, new.confirmed_at];
    session::one(session, &sql, &values, session_of).await
}

pub(crate) async fn find<S: Session>(
    session: &S,
    hash: &TokenHash,
    idle_since: Timestamp,
    now: Timestamp,
) -> Result<Option<(PersonSession, Person)>, S::Error> {
    let sql =
        format!("SELECT {COLUMNS} FROM person_sessions WHERE hash = $1 AND seen_at > $2 AND expires_at > $3");
    let found = session::first(session, &sql, &values![hash, idle_since, now], session_of).await?;
    let Some(found) = found else { return Ok(None) };
    let person = person::find(session, found.person).await?;
    Ok(person.filter(|person| person.disabled_at.is_none()).map(|person| (found, person)))
}

pub(crate) async fn touch<S: Session>(session: &S, id: u64, now: Timestamp) -> Result<(), S::Error> {
    let sql = "UPDATE person_sessions SET seen_at = $2 WHERE id = $1 AND seen_at < $2";
    session.execute(sql, &values![id, now]).await.map(drop)
}

pub(crate) async fn confirm<S: Session>(session: &S, id: u64, now: Timestamp) -> Result<(), S::Error> {
    let sql = "UPDATE person_sessions SET confirmed_at = $2 WHERE id = $1";
    session::change(session, sql, &values![id, now]).await
}

pub(crate) async fn list<S: Session>(
    session: &S,
    person: PersonId,
    idle_since: Timestamp,
    now: Timestamp,
) -> Result<Vec<PersonSession>, S::Error> {
    let sql = format!(
        "SELECT {COLUMNS} FROM person_sessions WHERE person = $1 AND seen_at > $2 AND expires_at > $3 ORDER BY id DESC"
    );
    session.query(&sql, &values![person.0, idle_since, now], session_of).await
}

pub(crate) async fn end<S: Session>(session: &S, person: PersonId, id: u64) -> Result<(), S::Error> {
    let sql = "DELETE FROM person_sessions WHERE id = $1 AND person = $2";
    session::change(session, sql, &values![id, person.0]).await
}

pub(crate) async fn end_others<S: Session>(
    session: &S,
    person: PersonId,
    except: Option<u64>,
) -> Result<u64, S::Error> {
    let sql = "DELETE FROM person_sessions WHERE person = $1 AND id <> $2";
    session.execute(sql, &values![person.0, except.unwrap_or_default()]).await
}
