//! The routes of each listener. A test compares the OpenAPI documents with these tables, so every route is documented.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::handler::Handler;
use axum::middleware;
use axum::routing::{MethodFilter, MethodRouter, on};
use http::{HeaderValue, Method, header};

use crate::error::{Code, Problem};
use crate::handler::{
    activity, app, batch, campaign, channel, connect, credential, device, drain, endpoint, experiment,
    health, invalidation, item, me, nodes, notice, notification, page, preferences, presence, profile,
    push_token, quota, relay, topic, topic_rules, user, web_push,
};
use crate::request::access::Listener;
use crate::state::{Api, State};
use crate::{connection, observe, origin};

/// A path and its handler.
pub struct Route {
    pub method: Method,
    pub path: &'static str,
    handler: MethodRouter<Api>,
}

/// The public listener, for devices and providers.
pub fn router(state: Arc<State>) -> Router {
    build(public_routes(), Api::new(state, Listener::Public))
}

/// The admin listener, for operators.
pub fn admin_router(state: Arc<State>) -> Router {
    build(admin_routes(), Api::new(state, Listener::Admin))
}

/// For a connection that the pool rejected: responds 503 and closes.
pub fn no_capacity_router() -> Router {
    Router::new().fallback(async |request: Request| {
        let mut response = connection::no_capacity(request.headers());
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        response
    })
}

/// Method and path of every route of [`router`].
pub fn public_paths() -> Vec<(Method, &'static str)> {
    public_routes().into_iter().map(|route| (route.method, route.path)).collect()
}

/// Method and path of every route of [`admin_router`].
pub fn admin_paths() -> Vec<(Method, &'static str)> {
    admin_routes().into_iter().map(|route| (route.method, route.path)).collect()
}

fn public_routes() -> Vec<Route> {
    let mut routes = app_routes();
    routes.extend([
        post("/v1/notifications", notification::publish),
        post("/v1/notifications/batch", batch::notifications),
        post("/v1/notifications/relay", relay::notifications),
        get("/v1/notifications/{id}", notification::show),
        delete("/v1/notifications/{id}", notification::cancel),
        get("/v1/notifications/{id}/devices/{device}", notification::trace),
        post("/v1/campaigns", campaign::create),
        get("/v1/campaigns", campaign::list),
        get("/v1/campaigns/{id}", campaign::show),
        delete("/v1/campaigns/{id}", campaign::delete),
        post("/v1/campaigns/{id}/recipients", campaign::upload),
        post("/v1/campaigns/{id}/start", campaign::start),
        post("/v1/campaigns/{id}/pause", campaign::pause),
        post("/v1/campaigns/{id}/resume", campaign::resume),
        post("/v1/campaigns/{id}/abort", campaign::abort),
        post("/v1/activities", activity::start),
        get("/v1/activities", activity::list),
        get("/v1/activities/{id}", activity::show),
        patch("/v1/activities/{id}", activity::update),
        delete("/v1/activities/{id}", activity::end),
        get("/v1/activities/{id}/devices/{device}", activity::trace),
        post("/v1/presence", presence::query),
        get("/v1/topics", topic::list),
        get("/v1/topics/{topic}", topic::show),
        get("/v1/topics/{topic}/retained", topic::retained),
        delete("/v1/topics/{topic}/retained", topic::delete_retained),
        post("/v1/devices", device::register),
        get("/v1/devices", device::list),
        post("/v1/devices/batch", batch::devices),
        get("/v1/devices/{device}", device::show),
        delete("/v1/devices/{device}", device::delete),
        post("/v1/devices/{device}/revoke", device::revoke),
        get("/v1/devices/{device}/push-tokens", push_token::list),
        put("/v1/devices/{device}/push-tokens/{kind}", push_token::set),
        delete("/v1/devices/{device}/push-tokens/{kind}", push_token::remove),
        put("/v1/devices/{device}/push-tokens/{kind}/{name}", push_token::set),
        delete("/v1/devices/{device}/push-tokens/{kind}/{name}", push_token::remove),
        post("/v1/users/{user}/revoke", user::revoke),
        get("/v1/users/{user}/items", item::of_user),
        delete("/v1/users/{user}/items", item::delete_of_user),
        get("/v1/users/{user}/items/counts", item::counts_of_user),
        get("/v1/users/{user}/preferences", preferences::of_user),
        put("/v1/users/{user}/preferences", preferences::set_of_user),
        delete("/v1/users/{user}/preferences", preferences::clear_of_user),
        get("/v1/devices/{device}/preferences", preferences::of_device),
        put("/v1/devices/{device}/preferences", preferences::set_of_device),
        delete("/v1/devices/{device}/preferences", preferences::clear_of_device),
        get("/v1/devices/{device}/topics/{topic}/permission", topic_rules::explain),
        get("/v1/push/invalidations", invalidation::list),
        get("/v1/push/channels", channel::list),
        post("/v1/push/channels", channel::create),
        get("/v1/push/channels/{name}", channel::show),
        patch("/v1/push/channels/{name}", channel::change),
        delete("/v1/push/channels/{name}", channel::delete),
        post("/v1/push/channels/{name}/broadcasts", channel::broadcast),
        get("/v1/push/broadcasts/{id}", channel::show_broadcast),
        get("/v1/push/apns-channels", channel::list_apple),
        delete("/v1/push/apns-channels/{id}", channel::delete_apple),
        get("/v1/me", me::show),
        patch("/v1/me", me::change),
        delete("/v1/me", me::delete),
        put("/v1/me/topics/{topic}", me::subscribe),
        delete("/v1/me/topics/{topic}", me::unsubscribe),
        put("/v1/me/push-token", me::set_push_token),
        get("/v1/me/push-tokens", push_token::own),
        put("/v1/me/push-tokens/{kind}", push_token::set_own),
        delete("/v1/me/push-tokens/{kind}", push_token::remove_own),
        put("/v1/me/push-tokens/{kind}/{name}", push_token::set_own),
        delete("/v1/me/push-tokens/{kind}/{name}", push_token::remove_own),
        put("/v1/me/presence", me::set_presence),
        get("/v1/me/inbox", me::inbox),
        post("/v1/me/inbox/ack", me::ack),
        post("/v1/me/opened", me::open),
        get("/v1/me/items", item::own),
        patch("/v1/me/items", item::change),
        get("/v1/me/items/counts", item::own_counts),
        get("/v1/me/preferences", preferences::own),
        put("/v1/me/preferences", preferences::set_own),
        delete("/v1/me/preferences", preferences::clear_own),
        get("/v1/me/user/preferences", preferences::of_own_user),
        put("/v1/me/user/preferences", preferences::set_of_own_user),
        delete("/v1/me/user/preferences", preferences::clear_of_own_user),
        post("/v1/me/exposures", experiment::exposed),
        post("/v1/me/endpoints", endpoint::create),
        get("/v1/me/endpoints", endpoint::list),
        delete("/v1/me/endpoints/{id}", endpoint::delete),
        get("/push/{token}", web_push::discover),
        post("/push/{token}", web_push::post),
        delete("/push/message/{token}", web_push::cancel),
        get("/push/receipt/{token}", web_push::receipt),
        get("/v1/connect", connect::misdirected),
        get("/v1/events", connect::misdirected),
        get("/v1/apps/{app}", app::show),
        patch("/v1/apps/{app}", app::change),
        get("/openapi.json", page::openapi),
        get("/docs", page::docs),
        get("/", page::root),
    ]);
    routes
}

/// What the public and the admin listener have in common: the app of an `admin` key, or every app.
fn app_routes() -> Vec<Route> {
    vec![
        get("/v1/apps/{app}/keys", app::keys),
        post("/v1/apps/{app}/keys", app::create_key),
        delete("/v1/apps/{app}/keys/{key}", app::revoke_key),
        get("/v1/apps/{app}/topic-rules", topic_rules::show),
        put("/v1/apps/{app}/topic-rules", topic_rules::put),
        delete("/v1/apps/{app}/topic-rules", topic_rules::delete),
        get("/v1/apps/{app}/push", credential::list),
        post("/v1/apps/{app}/push", credential::add),
        delete("/v1/apps/{app}/push/{id}", credential::remove),
        post("/v1/apps/{app}/push/{id}/test", credential::test),
        post("/v1/apps/{app}/push/{id}/restore", credential::restore),
        get("/v1/apps/{app}/experiments", experiment::list),
        get("/v1/apps/{app}/experiments/{name}", experiment::show),
        put("/v1/apps/{app}/experiments/{name}", experiment::put),
        patch("/v1/apps/{app}/experiments/{name}", experiment::kill),
        delete("/v1/apps/{app}/experiments/{name}", experiment::archive),
        get("/v1/apps/{app}/experiments/{name}/devices/{device}", experiment::assigned),
        get("/v1/apps/{app}/notices", notice::list),
        get("/v1/apps/{app}/notices/{name}", notice::show),
        put("/v1/apps/{app}/notices/{name}", notice::put),
        delete("/v1/apps/{app}/notices/{name}", notice::end),
        get("/v1/apps/{app}/quotas", quota::show),
    ]
}

fn admin_routes() -> Vec<Route> {
    let mut routes = app_routes();
    routes.extend([
        get("/livez", health::livez),
        get("/healthz", health::livez),
        get("/readyz", health::readyz),
        get("/metrics", health::metrics),
        get("/v1/apps", app::list),
        post("/v1/apps", app::create),
        get("/v1/apps/{app}", app::show),
        put("/v1/apps/{app}", app::mirror),
        patch("/v1/apps/{app}", app::change),
        delete("/v1/apps/{app}", app::delete),
        put("/v1/apps/{app}/quotas", quota::put),
        patch("/v1/apps/{app}/quotas", quota::change),
        delete("/v1/apps/{app}/quotas", quota::clear),
        get("/v1/drain", drain::show),
        put("/v1/drain", drain::begin),
        delete("/v1/drain", drain::cancel),
        get("/v1/nodes", nodes::list),
        get("/debug/pprof/profile", profile::cpu),
        get("/debug/pprof/heap", profile::heap),
        get("/openapi.json", page::admin_openapi),
    ]);
    routes
}

/// These routes; `rest` serves all other paths.
pub(crate) fn build_upon(routes: Vec<Route>, api: Api, rest: Router) -> Router {
    finish(register(routes), api).fallback_service(rest)
}

fn build(routes: Vec<Route>, api: Api) -> Router {
    let mut router = register(routes);
    if api.listener() == Listener::Public {
        // The gateway serves these protocols on connections that begin with them.
        router = router
            .route("/socket.io/", on(MethodFilter::GET.or(MethodFilter::POST), connect::misdirected))
            .route("/mqtt", on(MethodFilter::GET, connect::misdirected))
            .route("/xmpp", on(MethodFilter::GET, connect::misdirected));
    }
    finish(router.fallback(async || Problem::new(Code::NotFound, "unknown path; see /docs")), api)
}

fn register(routes: Vec<Route>) -> Router<Api> {
    routes.into_iter().fold(Router::new(), |router, route| router.route(route.path, route.handler))
}

/// Middleware from the outside in: observe, origin, route.
fn finish(router: Router<Api>, api: Api) -> Router {
    let mut router = router.method_not_allowed_fallback(async || {
        Problem::new(Code::MethodNotAllowed, "the header \"Allow\" lists the methods of this path")
    });
    if api.listener() == Listener::Public {
        router = router.layer(middleware::from_fn(origin::allow));
    }
    router.layer(middleware::from_fn_with_state(Arc::new(api.observer()), observe::observe)).with_state(api)
}

pub fn get<T: 'static>(path: &'static str, handler: impl Handler<T, Api>) -> Route {
    Route { method: Method::GET, path, handler: on(MethodFilter::GET, handler) }
}

pub fn post<T: 'static>(path: &'static str, handler: impl Handler<T, Api>) -> Route {
    Route { method: Method::POST, path, handler: on(MethodFilter::POST, handler) }
}

pub fn put<T: 'static>(path: &'static str, handler: impl Handler<T, Api>) -> Route {
    Route { method: Method::PUT, path, handler: on(MethodFilter::PUT, handler) }
}

pub fn patch<T: 'static>(path: &'static str, handler: impl Handler<T, Api>) -> Route {
    Route { method: Method::PATCH, path, handler: on(MethodFilter::PATCH, handler) }
}

pub fn delete<T: 'static>(path: &'static str, handler: impl Handler<T, Api>) -> Route {
    Route { method: Method::DELETE, path, handler: on(MethodFilter::DELETE, handler) }
}
