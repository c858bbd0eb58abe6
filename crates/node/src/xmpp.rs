//! XMPP: listeners and protocol settings from the configuration.

use noroshi_gateway::xmpp::Config as XmppConfig;
use noroshi_gateway::{Listener, Speaks};
use noroshi_protocol::xmpp;

use crate::config::{Config, Role};
use crate::development;
use crate::reload::Certificates;

pub(crate) fn listeners(config: &Config, certificates: &Certificates) -> impl Iterator<Item = Listener> {
    let devices = config.node.roles.has(Role::Gateway);
    let plain = config.xmpp.listen.map(|address| (address, None));
    let encrypted = config.xmpp.tls_listen.map(|address| (address, certificates.public.clone()));
    let addresses = plain.into_iter().chain(encrypted).filter(move |_| devices);
    addresses.map(|(address, tls)| Listener { speaks: Speaks::Xmpp, address, tls })
}

pub(crate) fn config(config: &Config, certificates: &Certificates) -> XmppConfig {
    let given = &config.xmpp;
    // Accounts are only for conformance suites.
    let accounts = config.server.conformance;
    let mut protocol = xmpp::Config::new(&given.domain);
    // RFC 6120 §13.12: the minimum.
    let element_bytes_max = config.limits.client_message_bytes.max(10_000);
    (protocol.xml.element_bytes_max, protocol.early_bytes_max) = (element_bytes_max, element_bytes_max);
    protocol.unacked_bytes_max = config.gateway.send_queue_soft_bytes;
    let patience_ms = config.gateway.ping_timeout.as_millis();
    protocol.unacked_timeout_ms = u32::try_from(patience_ms).unwrap_or(u32::MAX);
    // At most an hour.
    protocol.resume_max_s = u32::try_from(given.resume.as_secs()).unwrap_or(u32::MAX);
    protocol.allow_plaintext = given.plaintext;
    (protocol.scram, protocol.registration) = (accounts, accounts);
    XmppConfig {
        protocol,
        starttls: certificates.public.clone(),
        redirect: given.redirect.as_deref().map(Into::into),
        accounts: given.accounts.clone(),
        accounts_app: development::APP.into(),
    }
}
