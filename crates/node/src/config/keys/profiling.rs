//! Keys of continuous profiling. Without a server, profiles are taken only on request.

use std::time::Duration;

use noroshi_profiling::Config as Push;
use noroshi_profiling::profiler::{HZ_DEFAULT, HZ_MAX};
use noroshi_profiling::push::{check_application, check_header, check_server, labels};

use super::{MINUTE, Reader, SECOND};
use crate::config::Profiling;

/// The default of Pyroscope's own agents.
const INTERVAL: Duration = Duration::from_secs(15);

impl Profiling {
    pub(super) fn read(reader: &mut Reader) -> Profiling {
        let server = reader.optional(
            "profiling.server",
            ("url", "http:// or https://, optionally with a path"),
            check_server,
            "Pyroscope server for continuous CPU profiles. May have a private address. Unset: none. See docs/profiling.md.",
        );
        let application = reader.optional(
            "profiling.application",
            ("text", "a name"),
            check_application,
            "Application name in Pyroscope. Unset: noroshi.",
        );
        let interval = reader.duration(
            "profiling.interval",
            INTERVAL,
            5 * SECOND..=10 * MINUTE,
            "Duration of each pushed profile. Profiles follow each other without a gap.",
        );
        let hz = reader.count(
            "profiling.hz",
            HZ_DEFAULT.into(),
            1..=HZ_MAX.into(),
            "samples",
            "Samples per second of CPU time.",
        ) as u32;
        let heap = reader.switch(
            "profiling.heap",
            false,
            "Also pushes heap profiles. Requires a build with the feature heap-profiling.",
        );
        let text = reader.optional(
            "profiling.labels",
            ("list", "NAME=VALUE, separated by commas"),
            |text| labels(text).map(drop),
            "Labels of the profiles, in addition to node, role and version.",
        );
        let user = reader.optional(
            "profiling.user",
            ("text", "a user"),
            |text| match text.contains(':') {
                // RFC 7617 §2
                true => Err("a user without a colon".to_owned()),
                false => check_header(text),
            },
            "User name for HTTP Basic authentication.",
        );
        let password_file = reader.optional(
            "profiling.password_file",
            ("path", "a file with the password"),
            |_| Ok(()),
            "File with the password of profiling.user. Read again for each profile.",
        );
        let tenant = reader.optional(
            "profiling.tenant",
            ("text", "a tenant's id"),
            check_header,
            "Tenant, sent as X-Scope-OrgID.",
        );
        let push = server.map(|server| Push {
            server,
            application: application.unwrap_or_else(|| "noroshi".to_owned()),
            interval,
            hz,
            heap,
            // Checked above: an invalid value is already a problem.
            labels: labels(text.as_deref().unwrap_or_default()).unwrap_or_default(),
            user,
            password_file: password_file.map(Into::into),
            tenant,
        });
        Profiling { push }
    }
}
