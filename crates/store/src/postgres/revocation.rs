//! Revoked app JWTs of devices and users.
//!
//! A registration with a JWT holds a shared lock of its user from before it reads the user's revocation until it
//! commits; revoking a user takes the lock exclusively. So a device that a revoked JWT creates either exists before
//! the revocation, which covers it, or is not created.

use noroshi_types::{AppId, DeviceId, Timestamp, UserId};

use super::transaction::{Failed, Tx, Values};
use crate::Revocation;

/// The app, the device, and the user of the credential.
pub(super) type Subjects<'a> = (AppId, &'a DeviceId, Option<&'a UserId>);

const LOAD: &str = "SELECT asked.place, 0::bigint, r.revoked_at
     FROM unnest($1::bigint[], $2::text[], $3::text[]) WITH ORDINALITY AS asked (app, device, of_user, place)
     JOIN revocations r ON r.app = asked.app AND r.kind = 0 AND r.id = asked.device
     UNION ALL
     SELECT asked.place, 1::bigint, r.revoked_at
     FROM unnest($1::bigint[], $2::text[], $3::text[]) WITH ORDINALITY AS asked (app, device, of_user, place)
     LEFT JOIN devices d ON asked.of_user IS NULL AND d.app = asked.app AND d.id = asked.device
     JOIN revocations r ON r.app = asked.app AND r.kind = 1 AND r.id = coalesce(asked.of_user, d.\"user\")";

/// Revocations in the order asked. Without a user, that of the device's current user.
pub(super) async fn load(tx: &Tx, asked: &[Subjects<'_>]) -> Result<Vec<Revocation>, Failed> {
    let apps: Vec<_> = asked.iter().map(|(app, _, _)| i64::from(app.0)).collect();
    let devices: Vec<_> = asked.iter().map(|(_, device, _)| device.as_str()).collect();
    let users: Vec<_> = asked.iter().map(|(_, _, user)| user.map(UserId::as_str)).collect();
    let values: Values<'_> = &[&apps, &devices, &users];
    let mut found = vec![Revocation::default(); asked.len()];
    for row in tx.query(LOAD, values).await? {
        let at = Some(Timestamp(row.get::<_, i64>(2) as u64));
        let revocation = &mut found[(row.get::<_, i64>(0) - 1) as usize];
        match row.get::<_, i64>(1) {
            0 => revocation.device = at,
            _ => revocation.user = at,
        }
    }
    Ok(found)
}

/// Prevents revocations of these users until the transaction ends.
pub(super) async fn keep_revocations_out(tx: &Tx, users: &[(AppId, &UserId)]) -> Result<(), Failed> {
    let apps: Vec<_> = users.iter().map(|(app, _)| i64::from(app.0)).collect();
    let users: Vec<_> = users.iter().map(|(_, user)| user.as_str()).collect();
    let sql = "SELECT pg_advisory_xact_lock_shared(hashtextextended(asked.of_user, asked.app))
               FROM unnest($1::bigint[], $2::text[]) AS asked (app, of_user)";
    tx.query(sql, &[&apps, &users]).await?;
    Ok(())
}

/// Prevents registrations with JWTs of this user until the transaction ends.
pub(super) async fn keep_registrations_out(tx: &Tx, app: AppId, user: &UserId) -> Result<(), Failed> {
    let sql = "SELECT pg_advisory_xact_lock(hashtextextended($2::text, $1::bigint))";
    tx.query(sql, &[&i64::from(app.0), &user.as_str()]).await?;
    Ok(())
}
