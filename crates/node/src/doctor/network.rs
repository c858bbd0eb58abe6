//! Checks of kernel queues and tables for connections.

use super::{Finding, Subject, Verdict, round_up, unless};
use crate::capacity::{BACKLOG, grouped, tracked};

/// Lower ports are for services such as the node's 8080 and 9090: while a proxy uses one, the node could not listen on it after
/// a restart.
const FIRST_PORT: u64 = 10_000;
const LAST_PORT: u64 = 65_535;

/// A queue never holds more than all connections.
fn queue(subject: &Subject) -> u64 {
    subject.requirements.connections.min(BACKLOG)
}

pub(super) fn listen_queue(subject: &Subject) -> Option<Finding> {
    let (found, required) = (subject.host.kernel.somaxconn?, queue(subject));
    let verdict = unless(found >= required, Verdict::Warn);
    let finding = Finding::new("listen queue", verdict, grouped(found), grouped(required));
    Some(finding.set("net.core.somaxconn", required))
}

/// Irrelevant with SYN cookies: tcp_conn_request() checks it only without them.
pub(super) fn half_open(subject: &Subject) -> Option<Finding> {
    let kernel = &subject.host.kernel;
    let (found, required) = (kernel.tcp_max_syn_backlog?, queue(subject));
    let (verdict, found) = match kernel.tcp_syncookies? {
        0 => (unless(found >= required, Verdict::Warn), format!("{}, no SYN cookies", grouped(found))),
        _ => (Verdict::Ok, "SYN cookies are on".to_owned()),
    };
    let finding = Finding::new("half-open connections", verdict, found, grouped(required));
    Some(finding.set("net.ipv4.tcp_max_syn_backlog", required))
}

pub(super) fn overflows(subject: &Subject) -> Option<Finding> {
    let listening = subject.host.listening?;
    let verdict = unless(listening.overflows == 0, Verdict::Warn);
    let found = format!("{} since the machine started, for all programs", grouped(listening.overflows));
    let finding = Finding::new("turned away at a full listen queue", verdict, found, "0");
    Some(finding.advise("if the number grows, use a longer listen queue, more cores or more nodes"))
}

/// A message to all devices takes a page of buffers for each until it is acknowledged. Above the second number the kernel saves
/// memory, above the third it rejects allocations (tcp(7), `tcp_mem`).
pub(super) fn tcp_memory(subject: &Subject) -> Option<Finding> {
    let [low, pressure, high] = subject.host.kernel.tcp_mem?;
    let pages = subject.requirements.connections;
    let verdict = unless(pressure >= pages, Verdict::Warn);
    let finding = Finding::new(
        "buffers of all sockets",
        verdict,
        format!("{} pages before memory pressure", grouped(pressure)),
        format!("{} pages: one per connection, for a message to all", grouped(pages)),
    );
    let low = low.max(pages / 4 * 3);
    let value = format!("{low} {pages} {}", high.max(pages.saturating_mul(2)));
    Some(finding.set("net.ipv4.tcp_mem", value))
}

pub(super) fn conntrack(subject: &Subject) -> Option<Finding> {
    let (found, count) = tracked(&subject.host)?;
    // Another tenth for closed connections that are still tracked, and for other programs.
    let required = subject.requirements.connections.saturating_add(subject.requirements.connections / 10);
    let verdict = unless(found >= required, Verdict::Fail);
    let shown = format!("{}, {} in use", grouped(found), grouped(count));
    let finding = Finding::new("tracked connections", verdict, shown, grouped(required));
    Some(finding.set("net.netfilter.nf_conntrack_max", round_up(required)))
}

/// A proxy needs one port for each connection between a pair of addresses.
pub(super) fn source_ports(subject: &Subject) -> Option<Finding> {
    if !subject.requirements.proxied {
        return None;
    }
    let (first, last) = subject.host.kernel.ip_local_port_range?;
    let (found, required) = (last.saturating_sub(first).saturating_add(1), subject.requirements.connections);
    let verdict = unless(found >= required, Verdict::Fail);
    let finding = Finding::new("ports of the proxy", verdict, grouped(found), grouped(required));
    let most = found.max(LAST_PORT - FIRST_PORT + 1);
    let finding = match most > found {
        true => finding.set("net.ipv4.ip_local_port_range", format!("{FIRST_PORT} {LAST_PORT}")),
        false => finding,
    };
    Some(match required.div_ceil(most) {
        0 | 1 => finding,
        addresses => finding.advise(format!(
            "each pair of addresses has at most {} ports; make the node listen on {addresses} addresses, or the proxy use \
             as many",
            grouped(most)
        )),
    })
}
