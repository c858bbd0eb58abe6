//! Rules of the cluster's keys: a valid address, and readable certificate authorities.

use noroshi_cluster::redis::Address;
use noroshi_egress::read_ca_file;

use super::Cluster;
use super::reader::Reader;

impl Cluster {
    pub(super) fn check(&self, reader: &mut Reader) {
        let address = self.redis.as_ref().map(|url| Address::parse(url.secret()));
        if let Some(Err(error)) = &address {
            reader.problem("cluster.redis", error.to_string());
        }
        let Some(path) = &self.redis_ca_file else { return };
        if !matches!(address, Some(Ok(Address { tls: true, .. }) | Err(_))) {
            reader.problem("cluster.redis_ca_file", "requires a cluster.redis that begins with rediss");
        } else if let Err(error) = read_ca_file(path) {
            reader.problem("cluster.redis_ca_file", error.to_string());
        }
    }
}
