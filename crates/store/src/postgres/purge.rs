//! Removing what a deleted app owned, page by page: see [`crate::purge`]. One of all nodes does it at a time, at the
//! row of `deleted_apps`; whoever finds that locked leaves it to the other.

use noroshi_types::{AppId, Timestamp};

use super::transaction::{Failed, Tx};
use crate::purge::{
    AT_ONCE, EMPTY, LATE, LOOKED_AT, MARKED, NOTIFICATIONS, OVER, PARTS, STATEMENTS, UP_TO, WHOLE,
};

/// The app is gone with this, whatever it owned.
pub(super) async fn begin(tx: &Tx, app: i64) -> Result<(), Failed> {
    for sql in AT_ONCE {
        tx.execute(sql, &[&app]).await?;
    }
    Ok(())
}

/// Removes about `rows_max` rows; true if there may be more.
pub(super) async fn page(tx: Tx, app: AppId, rows_max: i64) -> Result<bool, Failed> {
    let app = i64::from(app.0);
    let sql = "SELECT cursor FROM deleted_apps WHERE app = $1 FOR UPDATE SKIP LOCKED";
    let Some(row) = tx.query_opt(sql, &[&app]).await? else { return Ok(false) };
    let mut left = rows_max;
    for table in STATEMENTS.iter() {
        loop {
            let before = left;
            for sql in table {
                left -= tx.execute(sql, &[&app, &left]).await? as i64;
                if left <= 0 {
                    return Ok(true);
                }
            }
            if left == before {
                break;
            }
        }
    }
    notifications(&tx, app, row.get(0), left).await
}

/// The part that has no index to go by.
async fn notifications(tx: &Tx, app: i64, behind: i64, mut left: i64) -> Result<bool, Failed> {
    let up_to: Option<i64> = tx.query_one(UP_TO, &[&behind, &NOTIFICATIONS]).await?.get(0);
    let Some(up_to) = up_to else { return Ok(false) };
    for sql in PARTS {
        left -= tx.execute(sql, &[&app, &behind, &up_to, &left]).await? as i64;
        if left <= 0 {
            return Ok(true);
        }
    }
    tx.execute(WHOLE, &[&app, &behind, &up_to]).await?;
    tx.execute(LOOKED_AT, &[&app, &up_to]).await?;
    Ok(true)
}

/// Goes on with all deleted apps; true if there may be more.
pub(super) async fn resume(tx: Tx, now: Timestamp, rows_max: usize) -> Result<bool, Failed> {
    let (now, late) = (now.0 as i64, LATE.as_millis() as i64);
    for row in tx.query(MARKED, &[]).await? {
        let app: i64 = row.get(0);
        if page(tx.clone(), AppId(app as u32), rows_max as i64).await? {
            return Ok(true);
        }
        tx.execute(EMPTY, &[&app, &now]).await?;
    }
    tx.execute(OVER, &[&(now - late)]).await?;
    Ok(false)
}
