//! People as rows.
//!
//! The rows of all owners are locked before an owner is removed, so that two of them cannot remove each other. A change
//! locks the person's row before it reads it, after those of the owners, so that no change undoes a concurrent one.

use noroshi_types::{AppId, PersonId, Role, Timestamp, limits};

use super::record::{Record, to_array, unknown};
use super::session::{self, Session, values};
use crate::{Error, NewPerson, OpenId, Person, PersonChange, PersonLogin, TokenHash, TotpChange};

const COLUMNS: &str = "p.id, p.email, p.name, p.password, p.totp, p.totp_on, p.recovery, p.openid_issuer, \
                       p.openid_subject, p.created_at, p.disabled_at";

/// In [`crate::Person::roles`] `None`.
const ALL_APPS: i64 = 0;

/// Who gave a role.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RoleSource {
    Person = 0,
    Mapping = 1,
}

/// An app, the role in it, and whether a mapping gave the role.
type RoleRow = (Option<AppId>, Role, bool);

/// Without the roles.
fn person_of(row: &dyn Record) -> Result<Person, Error> {
    let openid = row.string_or_null(7)?.zip(row.string_or_null(8)?);
    Ok(Person {
        id: PersonId(row.count(0)?),
        email: row.string(1)?,
        name: row.string(2)?,
        login: PersonLogin {
            password: row.string_or_null(3)?,
            totp: row.bytes_or_null(4)?.map(<[u8]>::to_vec),
            totp_is_on: row.int(5)? != 0,
            recovery: hashes(row, 6)?,
            openid: openid.map(|(issuer, subject)| OpenId { issuer, subject }),
        },
        created_at: row.time(9)?,
        disabled_at: row.time_or_null(10)?,
        roles: Vec::new(),
        mapped: Vec::new(),
    })
}

fn add_role(person: &mut Person, (app, role, is_mapped): RoleRow) {
    person.roles.push((app, role));
    person.mapped.extend(is_mapped.then_some(app));
}

/// From three columns.
fn role_row(row: &dyn Record, column: usize) -> Result<RoleRow, Error> {
    let is_mapped = row.int(column + 2)? == RoleSource::Mapping as i64;
    Ok((app_of(row.int(column)?), role_of(row, column + 1)?, is_mapped))
}

fn hashes(row: &dyn Record, column: usize) -> Result<Vec<TokenHash>, Error> {
    row.bytes(column)?.chunks(size_of::<TokenHash>()).map(to_array).collect()
}

fn role_of(row: &dyn Record, column: usize) -> Result<Role, Error> {
    Role::from_code(row.code(column)?).ok_or_else(|| unknown("role"))
}

fn app_of(number: i64) -> Option<AppId> {
    (number != ALL_APPS).then_some(AppId(number as u32))
}

fn number_of(app: Option<AppId>) -> i64 {
    app.map_or(ALL_APPS, |app| app.0.into())
}

fn of_id(id: PersonId) -> i64 {
    id.0 as i64
}

/// The person whom `condition` on `p` selects.
async fn first<S: Session>(
    session: &S,
    condition: &str,
    values: &[session::Value<'_>],
) -> Result<Option<Person>, S::Error> {
    let sql = format!("SELECT {COLUMNS} FROM people p WHERE {condition}");
    let Some(mut person) = session::first(session, &sql, values, person_of).await? else { return Ok(None) };
    for role in roles_of(session, person.id).await? {
        add_role(&mut person, role);
    }
    Ok(Some(person))
}

async fn roles_of<S: Session>(session: &S, id: PersonId) -> Result<Vec<RoleRow>, S::Error> {
    let sql = "SELECT app, role, source FROM person_roles WHERE person = $1 ORDER BY app";
    session.query(sql, &values![of_id(id)], |row| role_row(row, 0)).await
}

pub(crate) async fn find<S: Session>(session: &S, id: PersonId) -> Result<Option<Person>, S::Error> {
    first(session, "p.id = $1", &values![of_id(id)]).await
}

/// As [`find`]. The row stays locked.
async fn locked<S: Session>(session: &S, id: PersonId) -> Result<Person, S::Error> {
    let lock = S::FOR_NO_KEY_UPDATE;
    let sql = format!("SELECT id FROM people WHERE id = $1 {lock}");
    session::first(session, &sql, &values![of_id(id)], |row| row.int(0)).await?.ok_or(Error::NotFound)?;
    Ok(find(session, id).await?.ok_or(Error::NotFound)?)
}

pub(crate) async fn with_email<S: Session>(session: &S, email: &str) -> Result<Option<Person>, S::Error> {
    first(session, "p.email = $1", &values![email]).await
}

pub(crate) async fn with_openid<S: Session>(
    session: &S,
    openid: &OpenId,
) -> Result<Option<Person>, S::Error> {
    let condition = "p.openid_issuer = $1 AND p.openid_subject = $2";
    first(session, condition, &values![openid.issuer.as_str(), openid.subject.as_str()]).await
}

pub(crate) async fn page<S: Session>(
    session: &S,
    after: PersonId,
    limit: usize,
) -> Result<Vec<Person>, S::Error> {
    let sql = format!("SELECT {COLUMNS} FROM people p WHERE p.id > $1 ORDER BY p.id LIMIT $2");
    let mut people = session.query(&sql, &values![of_id(after), limit], person_of).await?;
    let Some(last) = people.last().map(|person| of_id(person.id)) else { return Ok(people) };
    let sql = "SELECT person, app, role, source FROM person_roles WHERE person > $1 AND person <= $2 ORDER BY person, app";
    let role = |row: &dyn Record| Ok((PersonId(row.count(0)?), role_row(row, 1)?));
    for (id, role) in session.query(sql, &values![of_id(after), last], role).await? {
        if let Ok(at) = people.binary_search_by_key(&id, |person| person.id) {
            add_role(&mut people[at], role);
        }
    }
    Ok(people)
}

pub(crate) async fn of_app<S: Session>(
    session: &S,
    app: AppId,
    after: PersonId,
    limit: usize,
) -> Result<Vec<Person>, S::Error> {
    let sql = "SELECT person FROM person_roles WHERE app = $1 AND person > $2 ORDER BY person LIMIT $3";
    let id = |row: &dyn Record| Ok(PersonId(row.count(0)?));
    let mut people = Vec::new();
    for id in session.query(sql, &values![app, of_id(after), limit], id).await? {
        people.extend(find(session, id).await?);
    }
    Ok(people)
}

pub(crate) async fn create<S: Session>(
    session: &S,
    new: &NewPerson,
    now: Timestamp,
) -> Result<Person, S::Error> {
    let NewPerson { email, name, password, openid, roles } = new;
    let count = session::one(session, "SELECT count(*) FROM people", &[], |row| row.count(0)).await?;
    if count >= limits::PEOPLE_MAX {
        return Err(Error::Limit(format!("there are at most {} people", limits::PEOPLE_MAX)).into());
    }
    let sql =
        "INSERT INTO people (email, name, password, recovery, openid_issuer, openid_subject, created_at)
               VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING RETURNING id";
    let none: &[u8] = &[];
    let values = values![
        email,
        name,
        password.as_ref(),
        none,
        openid.as_ref().map(|openid| openid.issuer.as_str()),
        openid.as_ref().map(|openid| openid.subject.as_str()),
        now,
    ];
    let id = session::first(session, sql, &values, |row| row.int(0)).await?.ok_or(Error::Exists)?;
    for (app, role) in roles {
        put_role(session, id, *app, *role, RoleSource::Person).await?;
    }
    Ok(find(session, PersonId(id as u64)).await?.ok_or(Error::NotFound)?)
}

async fn put_role<S: Session>(
    session: &S,
    person: i64,
    app: Option<AppId>,
    role: Role,
    source: RoleSource,
) -> Result<(), S::Error> {
    if let Some(app) = app {
        session::require_app(session, app, S::FOR_KEY_SHARE).await?;
    }
    let sql = "INSERT INTO person_roles (person, app, role, source) VALUES ($1, $2, $3, $4)
               ON CONFLICT (person, app) DO UPDATE SET role = excluded.role, source = excluded.source";
    let values = values![person, number_of(app), role as u8, source as u8];
    session.execute(sql, &values).await.map(drop)
}

pub(crate) async fn set_role<S: Session>(
    session: &S,
    id: PersonId,
    app: Option<AppId>,
    role: Option<Role>,
) -> Result<Person, S::Error> {
    let owners = Owners::lock(session).await?;
    locked(session, id).await?;
    if app.is_none() && role != Some(Role::Owner) {
        owners.keep_one(id)?;
    }
    match role {
        Some(role) => put_role(session, of_id(id), app, role, RoleSource::Person).await?,
        None => {
            let sql = "DELETE FROM person_roles WHERE person = $1 AND app = $2";
            session.execute(sql, &values![of_id(id), number_of(app)]).await?;
        }
    }
    Ok(find(session, id).await?.ok_or(Error::NotFound)?)
}

pub(crate) async fn map_roles<S: Session>(
    session: &S,
    id: PersonId,
    roles: &[(Option<AppId>, Role)],
) -> Result<Person, S::Error> {
    // As for any change of roles, so that nobody counts on an owner whom this removes.
    Owners::lock(session).await?;
    let person = locked(session, id).await?;
    for app in &person.mapped {
        let sql = "DELETE FROM person_roles WHERE person = $1 AND app = $2";
        session.execute(sql, &values![of_id(id), number_of(*app)]).await?;
    }
    let given = |app: &Option<AppId>| {
        let has_role = person.roles.iter().any(|(of, _)| of == app);
        has_role && !person.mapped.contains(app)
    };
    for (app, role) in roles.iter().filter(|(app, _)| !given(app)) {
        put_role(session, of_id(id), *app, *role, RoleSource::Mapping).await?;
    }
    Ok(find(session, id).await?.ok_or(Error::NotFound)?)
}

/// The people who own all apps and can log in.
struct Owners(Vec<PersonId>);

impl Owners {
    async fn lock<S: Session>(session: &S) -> Result<Self, S::Error> {
        let lock = S::FOR_NO_KEY_UPDATE;
        let sql = format!("SELECT person, role FROM person_roles WHERE app = $1 ORDER BY person {lock}");
        let role = |row: &dyn Record| Ok((PersonId(row.count(0)?), role_of(row, 1)?));
        let roles = session.query(&sql, &values![ALL_APPS], role).await?;
        let mut owners = Vec::new();
        for (id, _) in roles.into_iter().filter(|(_, role)| *role == Role::Owner) {
            let sql = "SELECT id FROM people WHERE id = $1 AND disabled_at IS NULL";
            let found = session::first(session, sql, &values![of_id(id)], |row| row.int(0)).await?;
            owners.extend(found.map(|_| id));
        }
        Ok(Self(owners))
    }

    /// Fails if `leaving` is the only owner.
    fn keep_one(&self, leaving: PersonId) -> Result<(), Error> {
        if self.0 == [leaving] { Err(Error::Conflict) } else { Ok(()) }
    }
}

pub(crate) async fn change<S: Session>(
    session: &S,
    id: PersonId,
    change: &PersonChange,
    now: Timestamp,
) -> Result<Person, S::Error> {
    let PersonChange { name, password, totp, openid, is_disabled } = change;
    if *is_disabled == Some(true) {
        Owners::lock(session).await?.keep_one(id)?;
    }
    let person = locked(session, id).await?;
    let num = of_id(id);
    if let Some(openid) = openid {
        let other = with_openid(session, openid).await?;
        if other.is_some_and(|other| other.id != id) {
            return Err(Error::Exists.into());
        }
        let sql = "UPDATE people SET openid_issuer = $2, openid_subject = $3 WHERE id = $1";
        session.execute(sql, &values![num, openid.issuer.as_str(), openid.subject.as_str()]).await?;
    }
    let disabled_at = match is_disabled {
        Some(true) => person.disabled_at.or(Some(now)),
        Some(false) => None,
        None => person.disabled_at,
    };
    let sql = "UPDATE people SET name = $2, password = $3, disabled_at = $4 WHERE id = $1";
    let values = values![
        num,
        name.as_ref().unwrap_or(&person.name),
        password.as_ref().or(person.login.password.as_ref()),
        disabled_at,
    ];
    session.execute(sql, &values).await?;
    if let Some(totp) = totp {
        change_totp(session, num, totp).await?;
    }
    if disabled_at.is_some() {
        session.execute("DELETE FROM person_sessions WHERE person = $1", &values![num]).await?;
        session.execute("DELETE FROM tickets WHERE person = $1", &values![num]).await?;
    }
    Ok(find(session, id).await?.ok_or(Error::NotFound)?)
}

async fn change_totp<S: Session>(session: &S, person: i64, change: &TotpChange) -> Result<(), S::Error> {
    let none: &[u8] = &[];
    match change {
        TotpChange::Secret(secret) => {
            let sql = "UPDATE people SET totp = $2, totp_on = 0, totp_step = 0, recovery = $3 WHERE id = $1";
            session.execute(sql, &values![person, secret, none]).await?;
        }
        TotpChange::On { step, recovery } => {
            let sql = "UPDATE people SET totp_on = 1, totp_step = $2, recovery = $3 WHERE id = $1 AND totp IS NOT NULL";
            session::change(session, sql, &values![person, *step, &recovery.concat()]).await?;
        }
        TotpChange::Off => {
            let sql =
                "UPDATE people SET totp = NULL, totp_on = 0, totp_step = 0, recovery = $2 WHERE id = $1";
            session.execute(sql, &values![person, none]).await?;
        }
    }
    Ok(())
}

pub(crate) async fn delete<S: Session>(session: &S, id: PersonId) -> Result<(), S::Error> {
    Owners::lock(session).await?.keep_one(id)?;
    locked(session, id).await?;
    for table in ["person_roles", "person_sessions", "tickets"] {
        let sql = format!("DELETE FROM {table} WHERE person = $1");
        session.execute(&sql, &values![of_id(id)]).await?;
    }
    session::change(session, "DELETE FROM people WHERE id = $1", &values![of_id(id)]).await
}

pub(crate) async fn use_totp<S: Session>(session: &S, id: PersonId, step: u64) -> Result<bool, S::Error> {
    let sql = "UPDATE people SET totp_step = $2 WHERE id = $1 AND totp_on = 1 AND totp_step < $2";
    Ok(session.execute(sql, &values![of_id(id), step]).await? > 0)
}

pub(crate) async fn use_recovery_code<S: Session>(
    session: &S,
    id: PersonId,
    code: &TokenHash,
) -> Result<bool, S::Error> {
    let lock = S::FOR_NO_KEY_UPDATE;
    let sql = format!("SELECT recovery FROM people WHERE id = $1 AND totp_on = 1 {lock}");
    let codes = session::first(session, &sql, &values![of_id(id)], |row| hashes(row, 0)).await?;
    let codes = codes.unwrap_or_default();
    let rest: Vec<TokenHash> = codes.iter().copied().filter(|known| known != code).collect();
    if rest.len() == codes.len() {
        return Ok(false);
    }
    let sql = "UPDATE people SET recovery = $2 WHERE id = $1";
    session.execute(sql, &values![of_id(id), &rest.concat()]).await?;
    Ok(true)
}
