//! The configuration of a front, which forwards requests to several cells.

use noroshi_cells::Config as FrontConfig;
use noroshi_egress::ConfigError;

use crate::config::Config;

pub(crate) fn config(config: &Config) -> Result<FrontConfig, ConfigError> {
    let ca = config.egress.ca_file.as_deref().map(noroshi_egress::read_ca_file).transpose()?;
    Ok(FrontConfig {
        cells: config.front.cells.clone(),
        ca: ca.unwrap_or_default(),
        outbox_parts_max: config.front.outbox_parts_max,
        request_timeout: config.front.request_timeout,
        retention: config.store.trace_retention,
        ..Default::default()
    })
}
