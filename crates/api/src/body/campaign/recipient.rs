//! `POST /v1/campaigns/{id}/recipients`: one user per line, with values of the message's placeholders, or with its own
//! message, which has no placeholders.

use noroshi_delivery::campaign::{Line, Own};
use noroshi_types::UserId;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{VariablesBody, placed, variables};
use crate::body::Limits;
use crate::body::notification::{carried, shown};
use crate::error::Problem;
use crate::json::{self, Text};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecipientBody<'a> {
    user: Text<UserId>,
    variables: Option<VariablesBody>,
    #[serde(borrow)]
    notification: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

/// Parses one line.
pub fn recipient(line: &[u8], limits: &Limits) -> Result<Line, Problem> {
    let body: RecipientBody<'_> = json::parse(line)?;
    let own = Own {
        variables: body.variables.map(variables).unwrap_or_default(),
        notification: body.notification.map(|raw| shown(raw, "notification", false)).transpose()?,
        data: body.data.map(|raw| carried(raw, "data", limits.data_bytes)).transpose()?,
    };
    Ok(Line { user: body.user.0, own: own.check().map_err(placed)? })
}
