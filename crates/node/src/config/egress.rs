//! Outgoing connections: proxies from the environment, and validation of files, so that an invalid file is a configuration
//! problem like any other.

use noroshi_egress::{ConfigError, Proxies, proxy, read_ca_file};

use super::problem::Source;
use super::reader::{ProxyChoice, Reader};
use super::{Egress, Push};
use crate::push_key;

impl Egress {
    pub(super) fn complete(&mut self, reader: &mut Reader, environment: &[(String, String)]) {
        let no_proxy = self.no_proxy.as_deref().unwrap_or_else(|| proxy::no_proxy(environment));
        let proxies = match &self.proxy {
            Some(ProxyChoice::Direct) => Ok(Proxies::default()),
            Some(ProxyChoice::Through(proxy)) => Ok(Proxies::one(proxy.clone())),
            None => Proxies::from_environment(environment),
        };
        match proxies {
            Ok(proxies) => self.proxies = proxies.except(no_proxy),
            Err(ConfigError::Proxy { name, reason }) => {
                let text = format!("invalid: {reason}; use `direct` for no proxy");
                reader.problem_from(Source::Environment { name }, "egress.proxy", text);
            }
            Err(error) => reader.problem("egress.proxy", error.to_string()),
        }
        if let Some(Err(error)) = self.ca_file.as_deref().map(read_ca_file) {
            reader.problem("egress.ca_file", error.to_string());
        }
    }
}

impl Push {
    pub(super) fn check(&self, reader: &mut Reader) {
        if let Some(Err(error)) = self.key_file.as_deref().map(push_key::read) {
            reader.problem("push.key_file", error.to_string());
        }
    }
}
