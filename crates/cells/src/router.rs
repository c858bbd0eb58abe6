//! The routes of a front. The API serves apps, keys and documents as on any node; routes that only a cell can serve are
//! rejected by name; all others go to cells. A test compares the lists with the API's.

use std::sync::Arc;

use axum::{Extension, Router};
use http::Method;
use noroshi_api::parts::{self, delete, get, patch, post, put};
use noroshi_api::router::Route;

use crate::front::Front;
use crate::handler::{admin, devices, me, notifications, presence, publish, refusal, topics, users};

impl Front {
    /// The routes for devices and providers.
    pub fn router(self: &Arc<Self>) -> Router {
        let rest = noroshi_api::router(self.cells.state.clone());
        parts::public(self.cells.state.clone(), public_routes(), rest).layer(Extension(self.clone()))
    }

    /// The routes for operators: those of any node, and the cells.
    pub fn admin_router(self: &Arc<Self>) -> Router {
        let rest = noroshi_api::admin_router(self.cells.state.clone());
        parts::admin(self.cells.state.clone(), admin_routes(), rest).layer(Extension(self.clone()))
    }
}

impl Front {
    /// The console: its people, apps and keys are the front's; devices and users are in the cells.
    pub fn console_router(self: &Arc<Self>, is_public: bool) -> Router {
        let mut routes = public_routes();
        // Registration takes the key or token of the caller, which a person does not have.
        routes.retain(|route| route.path != "/v1/devices" || route.method != Method::POST);
        routes.extend(admin_routes().into_iter().filter(|route| route.path.starts_with("/v1/cells")));
        parts::console(self.cells.state.clone(), routes, is_public).layer(Extension(self.clone()))
    }
}

/// Served by the front's own API.
pub const OWN: [(Method, &str); 12] = [
    (Method::GET, "/v1/apps/{app}"),
    (Method::PATCH, "/v1/apps/{app}"),
    (Method::GET, "/v1/apps/{app}/keys"),
    (Method::POST, "/v1/apps/{app}/keys"),
    (Method::DELETE, "/v1/apps/{app}/keys/{key}"),
    (Method::GET, "/v1/apps/{app}/quotas"),
    (Method::GET, "/v1/apps/{app}/topic-rules"),
    (Method::PUT, "/v1/apps/{app}/topic-rules"),
    (Method::DELETE, "/v1/apps/{app}/topic-rules"),
    (Method::GET, "/openapi.json"),
    (Method::GET, "/docs"),
    (Method::GET, "/"),
];

/// Method and path of every route that is forwarded to cells or rejected.
pub fn public_paths() -> Vec<(Method, &'static str)> {
    public_routes().into_iter().map(|route| (route.method, route.path)).collect()
}

fn public_routes() -> Vec<Route> {
    let mut routes = cell_only_routes();
    routes.extend([
        post("/v1/notifications", publish::one),
        post("/v1/notifications/batch", publish::batch),
        get("/v1/notifications/{id}", notifications::show),
        delete("/v1/notifications/{id}", notifications::cancel),
        get("/v1/notifications/{id}/devices/{device}", notifications::trace),
        post("/v1/presence", presence::query),
        get("/v1/topics", topics::list),
        get("/v1/topics/{topic}", topics::show),
        get("/v1/topics/{topic}/retained", topics::retained),
        delete("/v1/topics/{topic}/retained", topics::delete_retained),
        post("/v1/devices", devices::register),
        get("/v1/devices", devices::list),
        post("/v1/devices/batch", devices::batch),
        get("/v1/devices/{device}", devices::show),
        delete("/v1/devices/{device}", devices::delete),
        post("/v1/devices/{device}/revoke", devices::revoke),
        get("/v1/devices/{device}/push-tokens", devices::forward),
        put("/v1/devices/{device}/push-tokens/{kind}", devices::forward),
        delete("/v1/devices/{device}/push-tokens/{kind}", devices::forward),
        put("/v1/devices/{device}/push-tokens/{kind}/{name}", devices::forward),
        delete("/v1/devices/{device}/push-tokens/{kind}/{name}", devices::forward),
        post("/v1/users/{user}/revoke", users::revoke),
        get("/v1/users/{user}/items", users::read),
        delete("/v1/users/{user}/items", users::delete_items),
        get("/v1/users/{user}/items/counts", users::read),
        get("/v1/users/{user}/preferences", users::read),
        put("/v1/users/{user}/preferences", users::set_preferences),
        delete("/v1/users/{user}/preferences", users::clear_preferences),
        get("/v1/devices/{device}/endpoints", devices::show),
        delete("/v1/devices/{device}/endpoints/{id}", devices::forward),
        get("/v1/devices/{device}/preferences", devices::show),
        put("/v1/devices/{device}/preferences", devices::forward),
        delete("/v1/devices/{device}/preferences", devices::forward),
        get("/v1/devices/{device}/topics/{topic}/permission", devices::permission),
        get("/v1/me", me::forward),
        patch("/v1/me", me::forward),
        delete("/v1/me", me::delete),
        put("/v1/me/topics/{topic}", me::forward),
        delete("/v1/me/topics/{topic}", me::forward),
        put("/v1/me/push-token", me::forward),
        get("/v1/me/push-tokens", me::forward),
        put("/v1/me/push-tokens/{kind}", me::forward),
        delete("/v1/me/push-tokens/{kind}", me::forward),
        put("/v1/me/push-tokens/{kind}/{name}", me::forward),
        delete("/v1/me/push-tokens/{kind}/{name}", me::forward),
        put("/v1/me/presence", me::forward),
        get("/v1/me/inbox", me::forward),
        post("/v1/me/inbox/ack", me::forward),
        post("/v1/me/opened", me::forward),
        get("/v1/me/items", me::forward),
        patch("/v1/me/items", me::forward),
        get("/v1/me/items/counts", me::forward),
        get("/v1/me/preferences", me::forward),
        put("/v1/me/preferences", me::forward),
        delete("/v1/me/preferences", me::forward),
        get("/v1/me/user/preferences", me::forward),
        put("/v1/me/user/preferences", me::forward),
        delete("/v1/me/user/preferences", me::forward),
        post("/v1/me/exposures", me::forward),
        post("/v1/me/endpoints", me::forward),
        get("/v1/me/endpoints", me::forward),
        delete("/v1/me/endpoints/{id}", me::forward),
        get("/push/{token}", refusal::push),
        post("/push/{token}", refusal::push),
        delete("/push/message/{token}", refusal::push),
        get("/push/receipt/{token}", refusal::push),
        get("/v1/connect", refusal::connection),
        get("/v1/events", refusal::connection),
        post("/v1/notifications/relay", refusal::relay),
        get("/v1/notifications", refusal::notifications),
        get("/v1/push/invalidations", refusal::invalidations),
        get("/v1/push/channels", refusal::channels),
        post("/v1/push/channels", refusal::channels),
        get("/v1/push/channels/{name}", refusal::channels),
        patch("/v1/push/channels/{name}", refusal::channels),
        delete("/v1/push/channels/{name}", refusal::channels),
        post("/v1/push/channels/{name}/broadcasts", refusal::channels),
        get("/v1/push/broadcasts/{id}", refusal::channels),
        get("/v1/push/apns-channels", refusal::channels),
        delete("/v1/push/apns-channels/{id}", refusal::channels),
        post("/v1/campaigns", refusal::campaigns),
        get("/v1/campaigns", refusal::campaigns),
        get("/v1/campaigns/{id}", refusal::campaigns),
        patch("/v1/campaigns/{id}", refusal::campaigns),
        delete("/v1/campaigns/{id}", refusal::campaigns),
        post("/v1/campaigns/{id}/estimate", refusal::campaigns),
        get("/v1/campaigns/{id}/recipients/{user}", refusal::campaigns),
        post("/v1/campaigns/{id}/recipients", refusal::campaigns),
        post("/v1/campaigns/{id}/start", refusal::campaigns),
        post("/v1/campaigns/{id}/pause", refusal::campaigns),
        post("/v1/campaigns/{id}/resume", refusal::campaigns),
        post("/v1/campaigns/{id}/abort", refusal::campaigns),
        post("/v1/activities", refusal::activities),
        get("/v1/activities", refusal::activities),
        get("/v1/activities/{id}", refusal::activities),
        patch("/v1/activities/{id}", refusal::activities),
        delete("/v1/activities/{id}", refusal::activities),
        get("/v1/activities/{id}/devices/{device}", refusal::activities),
    ]);
    routes
}

/// What each cell manages separately, on both listeners.
fn cell_only_routes() -> Vec<Route> {
    vec![
        get("/v1/apps/{app}/series", refusal::series),
        get("/v1/apps/{app}/push", refusal::credentials),
        post("/v1/apps/{app}/push", refusal::credentials),
        delete("/v1/apps/{app}/push/{id}", refusal::credentials),
        post("/v1/apps/{app}/push/{id}/test", refusal::credentials),
        post("/v1/apps/{app}/push/{id}/rotate", refusal::credentials),
        post("/v1/apps/{app}/push/{id}/restore", refusal::credentials),
        get("/v1/apps/{app}/experiments", refusal::definitions),
        get("/v1/apps/{app}/experiments/{name}", refusal::definitions),
        put("/v1/apps/{app}/experiments/{name}", refusal::definitions),
        patch("/v1/apps/{app}/experiments/{name}", refusal::definitions),
        delete("/v1/apps/{app}/experiments/{name}", refusal::definitions),
        get("/v1/apps/{app}/experiments/{name}/devices/{device}", refusal::definitions),
        get("/v1/apps/{app}/notices", refusal::definitions),
        get("/v1/apps/{app}/notices/{name}", refusal::definitions),
        put("/v1/apps/{app}/notices/{name}", refusal::definitions),
        delete("/v1/apps/{app}/notices/{name}", refusal::definitions),
    ]
}

fn admin_routes() -> Vec<Route> {
    let mut routes = cell_only_routes();
    routes.extend([
        get("/v1/series", refusal::series),
        get("/v1/cells", admin::list),
        patch("/v1/cells/{cell}", admin::change),
        post("/v1/cells/{cell}/moves", admin::relocate),
    ]);
    routes
}
