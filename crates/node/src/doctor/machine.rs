//! Checks of memory, cores and kernel version.

use super::{Finding, Subject, Verdict, unless};
use crate::capacity::{device_bytes, grouped, memory_for_devices, size};

/// Log-ins per second and core, including token verification and store read; half of the measured rate.
const LOG_INS_PER_CORE: u64 = 5_000;
/// Users notice if it takes longer until all devices are reconnected.
const ALL_BACK_S: u64 = 60;
/// The oldest maintained long-term kernel.
const KERNEL_MIN: (u32, u32) = (5, 10);

pub(super) fn memory(subject: &Subject) -> Option<Finding> {
    let (memory, required) = (&subject.host.memory, &subject.requirements);
    let left = memory.left_bytes()?;
    let idle = device_bytes(required.tls).saturating_mul(required.connections);
    let verdict = match idle {
        idle if idle <= memory_for_devices(left) => Verdict::Ok,
        idle if idle <= left => Verdict::Warn,
        _ => Verdict::Fail,
    };
    let limit = match &memory.cgroup {
        Some(group) if group.left_bytes() == left => format!(" of the cgroup's {}", size(group.limit_bytes)),
        _ => memory.total_bytes.map(|total| format!(" of {}", size(total))).unwrap_or_default(),
    };
    let kind = if required.tls { "with TLS" } else { "without TLS" };
    let needed = size(idle.saturating_mul(4) / 3);
    let each = size(device_bytes(required.tls));
    Some(
        Finding::new(
            "memory",
            verdict,
            format!("{} available{limit}", size(left)),
            format!("{needed}: {each} per connection {kind}, plus a quarter in reserve"),
        )
        .advise("use more memory, a higher limit of the cgroup or container, or more nodes"),
    )
}

pub(super) fn cores(subject: &Subject) -> Option<Finding> {
    let (cores, connections) = (subject.host.cores, subject.requirements.connections);
    let required = connections.div_ceil(LOG_INS_PER_CORE * ALL_BACK_S).max(1);
    let seconds = connections.div_ceil(LOG_INS_PER_CORE.saturating_mul(cores.max(1)));
    let verdict = unless(cores >= required, Verdict::Warn);
    let finding = Finding::new("cores", verdict, cores.to_string(), required.to_string());
    let all_back = format!(
        "if all devices reconnect at once, it takes {} s until the last one is connected",
        grouped(seconds)
    );
    Some(finding.advise(all_back))
}

pub(super) fn kernel(subject: &Subject) -> Option<Finding> {
    let release = subject.host.kernel.release.as_ref()?;
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let found = (numbers.next()?, numbers.next()?);
    let verdict = unless(found >= KERNEL_MIN, Verdict::Warn);
    let required = format!("{}.{}", KERNEL_MIN.0, KERNEL_MIN.1);
    let finding = Finding::new("kernel", verdict, format!("Linux {release}"), required);
    Some(finding.advise("use a newer kernel; this one is untested and no longer maintained"))
}
