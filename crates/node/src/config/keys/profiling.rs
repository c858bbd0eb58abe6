//! The keys of pushed profiles. Where no server is named nothing is sampled but for those who ask.

use std::time::Duration;

use noroshi_profiling::Config as Push;
use noroshi_profiling::profiler::{HZ_DEFAULT, HZ_MAX};
use noroshi_profiling::push::{check_application, check_header, check_server, labels};

use super::{MINUTE, Reader, SECOND};
use crate::config::Profiling;

/// What Pyroscope's own agents send by.
const INTERVAL: Duration = Duration::from_secs(15);

impl Profiling {
    pub(super) fn read(reader: &mut Reader) -> Profiling {
        let server = reader.optional(
            "profiling.server",
            ("url", "http:// or https://, with a path where there is one"),
            check_server,
            "Pyroscope server that CPU profiles are pushed to all the time; may be on a private address. Unset: none. See docs/profiling.md.",
        );
        let application = reader.optional(
            "profiling.application",
            ("text", "a name"),
            check_application,
            "Name of the application there. Unset: noroshi.",
        );
        let interval = reader.duration(
            "profiling.interval",
            INTERVAL,
            5 * SECOND..=10 * MINUTE,
            "Length of each profile that is pushed; they follow each other without a gap.",
        );
        let hz = reader.count(
            "profiling.hz",
            HZ_DEFAULT.into(),
            1..=HZ_MAX.into(),
            "samples",
            "Samples for each second of CPU time.",
        ) as u32;
        let heap = reader.switch(
            "profiling.heap",
            false,
            "Heap profiles too; for a program that was built with the feature heap-profiling.",
        );
        let text = reader.optional(
            "profiling.labels",
            ("list", "NAME=VALUE with commas between them"),
            |text| labels(text).map(drop),
            "Labels of the profiles, beside node, role and version.",
        );
        let user = reader.optional(
            "profiling.user",
            ("text", "a user"),
            |text| match text.contains(':') {
                // RFC 7617 §2
                true => Err("a user without a colon".to_owned()),
                false => check_header(text),
            },
            "User that the server knows this node by (HTTP Basic).",
        );
        let password_file = reader.optional(
            "profiling.password_file",
            ("path", "a file with the password"),
            |_| Ok(()),
            "Password of profiling.user. Read again for each profile.",
        );
        let tenant = reader.optional(
            "profiling.tenant",
            ("text", "a tenant's id"),
            check_header,
            "Sent as X-Scope-OrgID, where the server has several tenants.",
        );
        let push = server.map(|server| Push {
            server,
            application: application.unwrap_or_else(|| "noroshi".to_owned()),
            interval,
            hz,
            heap,
            // Checked above: what is wrong there is a problem already.
            labels: labels(text.as_deref().unwrap_or_default()).unwrap_or_default(),
            user,
            password_file: password_file.map(Into::into),
            tenant,
        });
        Profiling { push }
    }
}
