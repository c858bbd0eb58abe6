//! The audit log as rows, and the removal of what people leave behind.

use noroshi_types::{PersonId, Timestamp};

use super::record::{Record, unknown};
use super::session::{self, Session, Value, values};
use crate::{AuditEntry, AuditFilter, Audited, AuditedBy, Error};

const COLUMNS: &str =
    "id, at, by_kind, person, by_name, app, action, target, old_value, new_value, address, request";

const BY_PERSON: u8 = 1;
const BY_KEY: u8 = 2;
const BY_OPERATOR_TOKEN: u8 = 3;
const BY_NODE: u8 = 4;

fn entry_of(row: &dyn Record) -> Result<AuditEntry, Error> {
    let by = match row.code(2)? {
        BY_PERSON => AuditedBy::Person { id: PersonId(row.count(3)?), email: row.string(4)? },
        BY_KEY => AuditedBy::Key(row.string(4)?),
        BY_OPERATOR_TOKEN => AuditedBy::OperatorToken,
        BY_NODE => AuditedBy::Node,
        _ => return Err(unknown("author of a change")),
    };
    let app = row.int_or_null(5)?.map(|_| row.app(5)).transpose()?;
    Ok(AuditEntry {
        id: row.count(0)?,
        at: row.time(1)?,
        change: Audited {
            by,
            app,
            action: row.string(6)?,
            target: row.string(7)?,
            before: row.string_or_null(8)?,
            after: row.string_or_null(9)?,
            address: row.string(10)?,
            request: row.string(11)?,
        },
    })
}

pub(crate) async fn record<S: Session>(
    session: &S,
    changes: &[Audited],
    now: Timestamp,
) -> Result<(), S::Error> {
    let sql = "INSERT INTO audit (at, by_kind, person, by_name, app, action, target, old_value, new_value, address, request)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
    for change in changes {
        let (kind, person, name) = match &change.by {
            AuditedBy::Person { id, email } => (BY_PERSON, Some(id.0), Some(email.as_str())),
            AuditedBy::Key(name) => (BY_KEY, None, Some(name.as_str())),
            AuditedBy::OperatorToken => (BY_OPERATOR_TOKEN, None, None),
            AuditedBy::Node => (BY_NODE, None, None),
        };
        let values = values![
            now,
            kind,
            person,
            name,
            change.app,
            &change.action,
            &change.target,
            change.before.as_ref(),
            change.after.as_ref(),
            &change.address,
            &change.request,
        ];
        session.execute(sql, &values).await?;
    }
    Ok(())
}

pub(crate) async fn list<S: Session>(session: &S, filter: &AuditFilter) -> Result<Vec<AuditEntry>, S::Error> {
    let AuditFilter { app, person, action, since, until, before, limit } = filter;
    let first = first_since(session, *since).await?;
    let end = match until {
        Some(_) => first_since(session, *until).await?,
        None => None,
    };
    let end = [*before, end].into_iter().flatten().min().unwrap_or(i64::MAX as u64);
    let Some(first) = first else { return Ok(Vec::new()) };
    // Each condition stands in the text only if it is asked for, so that the planner sees which index serves.
    let mut values: Vec<Value<'_>> = values![end, first, *limit].to_vec();
    let mut conditions = String::new();
    let mut add = |column: &str, value: Option<Value<'static>>| {
        if let Some(value) = value {
            values.push(value);
            conditions.push_str(&format!(" AND {column} ${}", values.len()));
        }
    };
    add("app =", app.map(Value::from));
    add("person =", person.map(|person| Value::from(person.0)));
    if let Some(begin) = action {
        values.push(Value::from(begin.as_str()));
        let begin = values.len();
        // No range: PostgreSQL may sort by a language, in which '/' and '{' hardly count.
        conditions.push_str(&format!(" AND substr(action, 1, length(CAST(${begin} AS TEXT))) = ${begin}"));
    }
    let sql = format!(
        "SELECT {COLUMNS} FROM audit WHERE id < $1 AND id >= $2{conditions} ORDER BY id DESC LIMIT $3"
    );
    session.query(&sql, &values, entry_of).await
}

/// The first entry of this time or later. 0 without a time, `None` without such an entry.
async fn first_since<S: Session>(session: &S, time: Option<Timestamp>) -> Result<Option<u64>, S::Error> {
    let Some(time) = time else { return Ok(Some(0)) };
    let sql = "SELECT id FROM audit WHERE at >= $1 ORDER BY at, id LIMIT 1";
    session::first(session, sql, &values![time], |row| row.count(0)).await
}

pub(crate) async fn prune<S: Session>(
    session: &S,
    now: Timestamp,
    idle_since: Timestamp,
    audit_since: Timestamp,
    rows_max: usize,
) -> Result<u64, S::Error> {
    let parts = [
        ("person_sessions", "expires_at", now),
        ("person_sessions", "seen_at", idle_since),
        ("tickets", "expires_at", now),
        ("audit", "at", audit_since),
    ];
    let mut removed = 0;
    for (table, column, time) in parts {
        // Rows of the same time go together.
        let sql = format!(
            "SELECT max({column}) FROM (SELECT {column} FROM {table} WHERE {column} <= $1 ORDER BY {column} LIMIT $2) AS oldest"
        );
        let last = session::one(session, &sql, &values![time, rows_max], |row| row.time_or_null(0)).await?;
        let Some(last) = last else { continue };
        let sql = format!("DELETE FROM {table} WHERE {column} <= $1");
        removed += session.execute(&sql, &values![last]).await?;
    }
    Ok(removed)
}
