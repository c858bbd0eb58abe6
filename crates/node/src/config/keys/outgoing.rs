//! Keys of outgoing connections and of push services. Validates the files that they name, so that an invalid file is a
//! configuration problem like any other.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use noroshi_egress::{ConfigError, Proxies, proxy, read_ca_file};
use noroshi_types::limits;

use super::{DAY, MINUTE, SECOND};
use crate::config::problem::Source;
use crate::config::reader::{ProxyChoice, Reader, any};
use crate::push_key;

section! {
    #[derive(Debug, Clone)]
    Egress(reader, dev: bool) {
        /// Non-public networks that outgoing connections may reach. With `server.dev` the default is
        /// ["127.0.0.0/8", "::1/128"].
        pub allow: Vec<IpNet> = networks("egress.allow", &local_networks(dev)),
        /// Proxy for all outgoing connections: HTTP, HTTP over TLS, or SOCKS5. Unset: the environment
        /// variables `https_proxy`, `http_proxy`, `all_proxy`.
        proxy: Option<ProxyChoice> = proxy("egress.proxy"),
        /// Hosts to reach without the proxy. Unset: the environment variable `no_proxy`.
        no_proxy: Option<String> =
            optional("egress.no_proxy", ("list", "comma-separated names, addresses and networks"), any),
        /// Certificate authorities to trust in addition to the public ones.
        pub ca_file: Option<PathBuf> = optional_path("egress.ca_file", "a PEM file"),
        /// The result of `proxy`, `no_proxy` and the environment.
        pub proxies: Proxies = value(Proxies::default()),
    }
}

/// A development node may use servers on the same machine.
fn local_networks(dev: bool) -> Vec<IpNet> {
    let loopback = [
        IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(127, 0, 0, 0), 8)),
        IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::LOCALHOST, 128)),
    ];
    if dev { loopback.to_vec() } else { Vec::new() }
}

section! {
    #[derive(Debug, Clone)]
    Push(reader) {
        /// Key that encrypts push credentials at rest. Unset: with `server.dev` generated as `push.key` in
        /// the data folder, otherwise no credentials can be added.
        pub key_file: Option<PathBuf> =
            optional_path("push.key_file", "a file of 32 bytes in base64 or hexadecimal"),
        /// Queue of push batches: the store, or Redis Streams or SQS, into which one sender distributes them.
        /// Must be the same on all nodes.
        pub queue: Queue =
            one_of("push.queue", &[("store", Queue::Store), ("redis", Queue::Redis), ("sqs", Queue::Sqs)]),
        /// Maximum connections to one push service for one credential.
        pub connections: usize =
            count("push.connections", limits::PUSH_CONNECTIONS as u64, 1..=256, "connections") as usize,
        /// Timeout for a push service's answer to one push.
        pub request_timeout: Duration =
            duration("push.request_timeout", limits::PUSH_REQUEST_TIMEOUT, SECOND..=5 * MINUTE),
        /// Default number of recipients in one batch of a campaign.
        pub batch: u32 = count(
            "push.batch",
            limits::CAMPAIGN_BATCH.into(),
            1..=limits::CAMPAIGN_BATCH_MAX.into(),
            "recipients",
        ) as u32,
        /// Total recipients taken from the queue and not answered yet.
        pub in_flight: usize =
            count("push.in_flight", limits::PUSH_IN_FLIGHT as u64, 1..=1_000_000, "recipients") as usize,
        /// How long requests to push services and their responses are kept, for `noroshi explain`. 0s: none is
        /// kept.
        pub record_retention: Duration =
            duration("push.record_retention", 7 * DAY, Duration::ZERO..=90 * DAY),
        /// How many of a million accepted pushes of campaigns, topics and conditions are kept. Pushes to named
        /// users and devices are always kept, and so are pushes that were not accepted.
        pub record_sample: u32 =
            count("push.record_sample", 10_000, 0..=1_000_000, "pushes of a million") as u32,
    }
}

/// The queue of push batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    Store,
    Redis,
    Sqs,
}

impl Egress {
    pub(in crate::config) fn complete(&mut self, reader: &mut Reader, environment: &[(String, String)]) {
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
    pub(in crate::config) fn check(&self, reader: &mut Reader) {
        if let Some(Err(error)) = self.key_file.as_deref().map(push_key::read) {
            reader.problem("push.key_file", error.to_string());
        }
    }
}
