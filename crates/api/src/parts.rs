//! What another listener of this API is made of: who asks, what may be in a body, how it is refused and counted.
//! For the front over several cells, which answers the same requests by asking others.

use std::sync::Arc;

use axum::Router;

use crate::router::Route;
use crate::state::{Api, Door, State};

pub use crate::access::{
    Devices, Needs, Network, Operator, Provider, Publish, Read, bearer, client, scoped, seen,
};
pub use crate::connect::ConnectBody;
pub use crate::extract::{Body, JsonBody, NdjsonBody, Path, Query};
pub use crate::fit::check_request;
pub use crate::handler::batch::lines;
pub use crate::handler::notification::{
    IDEMPOTENT_REPLAYED, body_hash, idempotency, idempotency_key, notification_id,
};
pub use crate::handler::topic::{page_limit, topic};
pub use crate::registration::draw_device_id;
pub use crate::respond::{Lines, json};
pub use crate::router::{delete, get, patch, post, put};
pub use crate::traced::Traced;

/// The public listener of these routes; `rest` answers every other path.
pub fn public(state: Arc<State>, routes: Vec<Route>, rest: Router) -> Router {
    crate::router::build_upon(routes, Api { state, door: Door::Public }, rest)
}

/// The same for operators.
pub fn admin(state: Arc<State>, routes: Vec<Route>, rest: Router) -> Router {
    crate::router::build_upon(routes, Api { state, door: Door::Admin }, rest)
}
