//! Outgoing connections: from configuration to [`noroshi_egress`].

use noroshi_egress::{Config as EgressConfig, ConfigError};

use crate::config::{self, Config};

pub(crate) fn config(config: &Config) -> Result<EgressConfig, ConfigError> {
    let config::Egress { allow, proxies, ca_file, .. } = &config.egress;
    Ok(EgressConfig {
        allow: allow.clone(),
        proxies: proxies.clone(),
        ca: ca_file.as_deref().map(noroshi_egress::read_ca_file).transpose()?.unwrap_or_default(),
        ..EgressConfig::default()
    })
}
