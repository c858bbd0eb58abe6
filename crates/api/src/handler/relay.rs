//! `POST /v1/notifications/relay`: notifications that a front accepted and forwards. A batch in which every line has its own
//! idempotency key, so that a retry in another batch is recognized.

use axum::extract::State as Shared;
use noroshi_delivery::{InOrder, Origin};
use noroshi_store::Idempotency;

use crate::body;
use crate::body::Limits;
use crate::error::Problem;
use crate::handler::batch::Batch;
use crate::request::access::{Provider, Publish};
use crate::request::body::NdjsonBody;
use crate::request::idempotency::body_hash;
use crate::request::page::lines;
use crate::respond::Lines;

/// Keys of other requests never begin with a line break, since a header cannot contain one.
const KEY_PREFIX: &str = "\n";

pub(crate) async fn notifications(
    Shared(body_limits): Shared<Limits>,
    provider: Provider<Publish>,
    NdjsonBody(body): NdjsonBody,
) -> Result<Lines, Problem> {
    let lines = lines(&body)?;
    provider.delivery.usage.admit_relay(provider.app).await?;
    let mut batch =
        Batch::new(&provider.delivery, provider.app, lines.len(), Origin::Front(InOrder::default()));
    for line in lines {
        let read = body::relayed(line, &body_limits, provider.delivery.clock().now());
        let read = read.map(|relayed| {
            let key = format!("{KEY_PREFIX}{}", relayed.key).into();
            let same = relayed.untraced.as_deref().map_or(line, str::as_bytes);
            (relayed.request, Some(Idempotency { key, body_hash: body_hash(same) }))
        });
        batch.push(read).await?;
    }
    batch.finish().await
}
