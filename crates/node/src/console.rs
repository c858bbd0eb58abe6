//! The web console: opened with the node, served on the admin address, and on the public one if configured.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use noroshi_api::State;
use noroshi_cells::Front;
use noroshi_console::{Console, Refused};
use noroshi_egress::Egress;
use noroshi_store::Store;
use noroshi_types::Timestamp;
use tokio_util::sync::CancellationToken;

use crate::config::{self, Config, Role};
use crate::egress;

/// The person who owns a development node.
const DEVELOPER: &str = "developer@localhost";
/// How long the log-in link of a development node works.
const DEVELOPMENT_LINK: Duration = Duration::from_secs(3_600);
/// How often expired sessions and old audit entries are removed.
const PRUNE_EVERY: Duration = Duration::from_secs(600);
const PRUNED_ROWS: usize = 500;

/// Why the console cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the database query failed: {0}")]
    Store(#[from] noroshi_store::Error),
    #[error("egress: {0}")]
    Egress(#[from] noroshi_egress::ConfigError),
}

/// `key`: that of push credentials.
pub(crate) async fn open(
    config: &Config,
    store: Arc<dyn Store>,
    key: Option<[u8; 32]>,
) -> Result<Arc<Console>, Error> {
    let console = noroshi_console::Config {
        session_idle: config.console.session_idle,
        session_max: config.console.session_max,
        audit_retention: config.console.audit_retention,
    };
    let console = Console::open(store, console, key).await?;
    let config::Console { oidc, url, .. } = &config.console;
    let Some(url) = url.as_ref().filter(|_| !oidc.providers.is_empty()) else { return Ok(Arc::new(console)) };
    // The operator names these servers, which may be in a private network. Apps must not reach it, so the node's restricted
    // egress does not open for them.
    let allow = noroshi_egress::Config::anywhere().allow;
    let egress = Egress::new(noroshi_egress::Config { allow, ..egress::config(config)? })?;
    Ok(Arc::new(console.with_openid(oidc.providers.clone(), url, &Arc::new(egress)).await?))
}

/// The routers of the public and the admin address, with the console where it is served.
/// `front`: the node is one.
pub(crate) fn serve(
    config: &Config,
    (state, front): (&Arc<State>, Option<&Arc<Front>>),
    public: Router,
    admin: Router,
) -> (Router, Router) {
    let has_api = config.node.roles.has(Role::Api) || front.is_some();
    if !has_api || !config.console.enabled {
        return (public, admin);
    }
    let with = |router: Router, is_public| {
        let console = match front {
            Some(front) => front.console_router(is_public),
            None => noroshi_api::console_router(state.clone(), is_public),
        };
        console.fallback_service(router)
    };
    (if config.console.public { with(public, true) } else { public }, with(admin, false))
}

/// Path and fragment of the page that logs the developer in, once.
pub(crate) async fn development_link(console: &Console, now: Timestamp) -> Result<String, Refused> {
    let developer = console.development_owner(DEVELOPER, now).await?;
    let link = console.link(None, developer, DEVELOPMENT_LINK, now).await?;
    Ok(format!("/console/link#token={}", link.token))
}

/// Removes what is over. Every node does, which costs nothing if another was faster.
pub(crate) async fn prune_forever(
    console: Arc<Console>,
    now: impl Fn() -> Timestamp,
    end: CancellationToken,
) {
    while end.run_until_cancelled(tokio::time::sleep(PRUNE_EVERY)).await.is_some() {
        if let Err(error) = console.prune(now(), PRUNED_ROWS).await {
            tracing::warn!(%error, "expired sessions and old audit entries could not be removed");
        }
    }
}
