//! The time series of the console as rows.

use noroshi_types::Timestamp;

use super::session::{self, Session, values};
use crate::{SeriesBound, SeriesRange, SeriesRow};

pub(crate) async fn write<S: Session>(session: &S, rows: &[SeriesRow]) -> Result<(), S::Error> {
    let sql = "INSERT INTO series (step, at, node, data) VALUES ($1, $2, $3, $4)
               ON CONFLICT (step, at, node) DO UPDATE SET data = excluded.data";
    for row in rows {
        session.execute(sql, &values![row.step_s, row.at, &row.node, &row.data]).await?;
    }
    Ok(())
}

pub(crate) async fn read<S: Session>(session: &S, range: &SeriesRange) -> Result<Vec<SeriesRow>, S::Error> {
    let SeriesRange { step_s, from, until, rows_max } = *range;
    let sql = "SELECT at, node, data FROM series WHERE step = $1 AND at >= $2 AND at < $3
               ORDER BY at, node LIMIT $4";
    let row = move |row: &dyn super::record::Record| {
        let (at, node, data) = (row.time(0)?, row.string(1)?, row.bytes(2)?.to_vec());
        Ok(SeriesRow { step_s, at, node, data })
    };
    session.query(sql, &values![step_s, from, until, rows_max], row).await
}

pub(crate) async fn newest<S: Session>(
    session: &S,
    step_s: u32,
    before: Timestamp,
) -> Result<Option<Timestamp>, S::Error> {
    let sql = "SELECT at FROM series WHERE step = $1 AND at < $2 ORDER BY at DESC LIMIT 1";
    session::first(session, sql, &values![step_s, before], |row| row.time(0)).await
}

pub(crate) async fn prune<S: Session>(session: &S, bounds: &[SeriesBound]) -> Result<u64, S::Error> {
    let mut removed = 0;
    for SeriesBound { step_s, since, until, rows_max, removed_max } in bounds {
        let sql = "DELETE FROM series WHERE step = $1 AND at > $2";
        removed += session.execute(sql, &values![*step_s, *until]).await?;
        // The newest row that is too many, if there is one.
        let sql = "SELECT at FROM series WHERE step = $1 ORDER BY at DESC LIMIT 1 OFFSET $2";
        let values = values![*step_s, *rows_max];
        let over = session::first(session, sql, &values, |row| row.time(0)).await?;
        let end = over.map_or(*since, |over| Timestamp(over.0.saturating_add(1)).max(*since));
        let sql = "SELECT max(at) FROM
                   (SELECT at FROM series WHERE step = $1 AND at < $2 ORDER BY at LIMIT $3) AS oldest";
        let values = values![*step_s, end, *removed_max];
        let last = session::one(session, sql, &values, |row| row.time_or_null(0)).await?;
        let Some(last) = last else { continue };
        let sql = "DELETE FROM series WHERE step = $1 AND at <= $2";
        removed += session.execute(sql, &values![*step_s, last]).await?;
    }
    Ok(removed)
}
