//! Parts for another listener with the same API: authentication, extractors, checks and responses. The front (`cells`), which
//! forwards requests to several cells, is built from them.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Router;
use http::{HeaderMap, Uri};
use noroshi_types::{AppId, Request};

use crate::error::Problem;
use crate::request::access::{self, Listener};
use crate::router::Route;
use crate::state::{Api, State};

pub use crate::address::ConnectBody;
pub use crate::handler::notification::notification_id;
pub use crate::handler::topic::topic;
pub use crate::handler::user::user_id;
pub use crate::registration::draw_device_id;
pub use crate::request::access::{
    Devices, Needs, Network, Operator, Provider, Publish, Read, bearer, client, scoped,
};
pub use crate::request::body::{Body, JsonBody, NdjsonBody};
pub use crate::request::caller::record_provider;
pub use crate::request::idempotency::{body_hash, idempotency, idempotency_key, mark_replayed};
pub use crate::request::page::{lines, page_limit};
pub use crate::request::parameter::{Path, Query};
pub use crate::request::trace::Traced;
pub use crate::respond::{Lines, json};
pub use crate::router::{delete, get, patch, post, put};

/// The public listener of these routes; `rest` serves all other paths.
pub fn public(state: Arc<State>, routes: Vec<Route>, rest: Router) -> Router {
    crate::router::build_upon(routes, Api::new(state, Listener::Public), rest)
}

/// The admin listener of these routes; `rest` serves all other paths.
pub fn admin(state: Arc<State>, routes: Vec<Route>, rest: Router) -> Router {
    crate::router::build_upon(routes, Api::new(state, Listener::Admin), rest)
}

/// The console of a front, with these routes in place of those of the API.
pub fn console(state: Arc<State>, routes: Vec<Route>, is_public: bool) -> Router {
    crate::router::console_router_with(state, routes, is_public)
}

/// The app that the request names for its JWT.
pub fn named_app<'a>(uri: &'a Uri, headers: &'a HeaderMap, state: &State) -> Option<Cow<'a, str>> {
    access::named_app(uri, headers, state.config.app_domain.as_deref())
}

/// Checks whether push services would accept the notification. Gives no warnings: a front does not know which push services
/// its cells use.
pub async fn check_request(state: &State, app: AppId, request: &Request) -> Result<(), Problem> {
    crate::push_check::check_request(&state.delivery, app, request).await.map(drop)
}
