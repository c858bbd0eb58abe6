//! What push services would not show, in responses.

use noroshi_push::Warning;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub(crate) struct WarningBody {
    service: &'static str,
    field: String,
    warning: &'static str,
}

impl From<Warning> for WarningBody {
    fn from(warning: Warning) -> Self {
        let Warning { service, field, warning } = warning;
        Self { service: service.as_str(), field, warning }
    }
}

pub(crate) fn bodies(warnings: Vec<Warning>) -> Vec<WarningBody> {
    warnings.into_iter().map(WarningBody::from).collect()
}
