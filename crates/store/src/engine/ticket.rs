//! Tickets of people as rows.

use noroshi_types::{AppId, PersonId, Role, Timestamp, limits};
use serde_json::{Value, json};

use super::record::{Record, invalid};
use super::session::{self, Session, values};
use crate::{Error, NewTicket, Ticket, TicketPurpose, TokenHash};

const COLUMNS: &str = "id, person, email, roles, created_by, created_at, expires_at";

fn ticket_of(row: &dyn Record) -> Result<Ticket, Error> {
    let purpose = match row.count_or_null(1)? {
        Some(person) => TicketPurpose::LogIn(PersonId(person)),
        None => TicketPurpose::Invitation { email: row.string(2)?, roles: roles_of(row.text(3)?)? },
    };
    Ok(Ticket {
        id: row.count(0)?,
        purpose,
        created_by: row.count_or_null(4)?.map(PersonId),
        created_at: row.time(5)?,
        expires_at: row.time(6)?,
    })
}

/// The stored form of roles: pairs of an app's number, or null for all apps, and a role's name.
fn text_of(roles: &[(Option<AppId>, Role)]) -> String {
    let pair = |(app, role): &(Option<AppId>, Role)| json!([app.map(|app| app.0), role.as_str()]);
    roles.iter().map(pair).collect::<Value>().to_string()
}

fn roles_of(text: &str) -> Result<Vec<(Option<AppId>, Role)>, Error> {
    let pairs: Vec<(Option<u32>, String)> =
        serde_json::from_str(text).map_err(|error| invalid("roles", error))?;
    // A role of a newer program grants nothing here.
    Ok(pairs.into_iter().filter_map(|(app, role)| Some((app.map(AppId), Role::named(&role)?))).collect())
}

pub(crate) async fn create<S: Session>(
    session: &S,
    new: &NewTicket,
    now: Timestamp,
) -> Result<Ticket, S::Error> {
    let count = "SELECT count(*) FROM tickets WHERE expires_at > $1";
    if session::one(session, count, &values![now], |row| row.count(0)).await? >= limits::TICKETS_MAX {
        let text = format!("there are at most {} open invitations and log-in links", limits::TICKETS_MAX);
        return Err(Error::Limit(text).into());
    }
    let (person, email, roles) = match &new.purpose {
        TicketPurpose::LogIn(person) => (Some(person.0), None, None),
        TicketPurpose::Invitation { email, roles } => (None, Some(email), Some(text_of(roles))),
    };
    let sql = format!(
        "INSERT INTO tickets (hash, person, email, roles, created_by, created_at, expires_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7) RETURNING {COLUMNS}"
    );
    let by = new.created_by.map(|person| person.0);
    let values = values![&new.hash, person, email, roles.as_ref(), by, now, new.expires_at];
    session::one(session, &sql, &values, ticket_of).await
}

pub(crate) async fn find<S: Session>(
    session: &S,
    hash: &TokenHash,
    now: Timestamp,
) -> Result<Option<Ticket>, S::Error> {
    let sql = format!("SELECT {COLUMNS} FROM tickets WHERE hash = $1 AND expires_at > $2");
    session::first(session, &sql, &values![hash, now], ticket_of).await
}

pub(crate) async fn take<S: Session>(
    session: &S,
    hash: &TokenHash,
    now: Timestamp,
) -> Result<Option<Ticket>, S::Error> {
    let sql = format!("DELETE FROM tickets WHERE hash = $1 AND expires_at > $2 RETURNING {COLUMNS}");
    session::first(session, &sql, &values![hash, now], ticket_of).await
}

pub(crate) async fn invitations<S: Session>(session: &S, now: Timestamp) -> Result<Vec<Ticket>, S::Error> {
    let sql = format!(
        "SELECT {COLUMNS} FROM tickets WHERE expires_at > $1 AND person IS NULL ORDER BY expires_at DESC, id DESC"
    );
    session.query(&sql, &values![now], ticket_of).await
}

pub(crate) async fn delete<S: Session>(session: &S, id: u64) -> Result<(), S::Error> {
    session::change(session, "DELETE FROM tickets WHERE id = $1", &values![id]).await
}
