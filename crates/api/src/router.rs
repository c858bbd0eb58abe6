//! The routes of each listener. A test compares the OpenAPI documents with these tables, so every route is documented.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use axum::extract::{FromRef, Request};
use axum::handler::Handler;
use axum::middleware;
use axum::routing::{MethodFilter, MethodRouter, on};
use axum::{Extension, Router};
use http::{HeaderValue, Method, header};
use noroshi_types::Permission::{self, Define, Devices, Manage, Own, Publish, Read};

use crate::error::{Code, Problem};
use crate::handler::{
    activity, app, audit, batch, campaign, cell, channel, connect, console, credential, device, drain,
    endpoint, experiment, health, inspection, invalidation, item, listing, me, nodes, notice, notification,
    openid, page, person, preferences, presence, profile, push_token, queues, quota, relay, series,
    session as session_handler, tail, topic, topic_rules, user, web_push,
};
use crate::request::access::Listener;
pub use crate::request::session::CONSOLE_API;
use crate::request::session::{self, Desk, Needed};
use crate::state::{Api, State};
use crate::{connection, observe, origin};

/// Routes of the console that a front does not have: push services and campaigns are in the cells.
const OF_CELLS: [&str; 3] = ["/v1/test-notifications", "/v1/campaigns/{id}/approve", "/v1/tail"];

/// A path and its handler.
pub struct Route {
    pub method: Method,
    pub path: &'static str,
    handler: MethodRouter<Api>,
    /// What a person of the console needs. None: the console does not have the route.
    needed: Option<Needed>,
    is_dangerous: bool,
}

impl Route {
    /// The console has the route, for people with the permission in the app that the request names.
    fn in_app(self, permission: Permission) -> Self {
        Self { needed: Some(Needed::InApp(permission)), ..self }
    }

    /// As [`Self::in_app`], with the permission in all apps.
    fn on_node(self, permission: Permission) -> Self {
        Self { needed: Some(Needed::OnNode(permission)), ..self }
    }

    fn for_any_person(self) -> Self {
        Self { needed: Some(Needed::Person), ..self }
    }

    fn for_anybody(self) -> Self {
        Self { needed: Some(Needed::Nothing), ..self }
    }

    /// People need a recent log-in.
    fn dangerous(self) -> Self {
        Self { is_dangerous: true, ..self }
    }

    /// With what [`session::admit`] checks.
    fn guarded(self, desk: &Desk) -> Option<(&'static str, MethodRouter<Api>)> {
        let guard = middleware::from_fn_with_state(desk.clone(), session::admit);
        let mut handler: MethodRouter<Api> = self.handler.layer(guard);
        handler = handler.layer(Extension(self.needed?));
        if self.is_dangerous {
            handler = handler.layer(Extension(session::Dangerous));
        }
        Some((self.path, handler))
    }
}

/// The public listener, for devices and providers.
pub fn router(state: Arc<State>) -> Router {
    build(public_routes(), Api::new(state, Listener::Public))
}

/// The admin listener, for operators.
pub fn admin_router(state: Arc<State>) -> Router {
    build(admin_routes(), Api::new(state, Listener::Admin))
}

/// The console: its page, and under [`CONSOLE_API`] the routes that people may use. On the public address (`is_public`), too
/// many requests are refused as the others there are.
pub fn console_router(state: Arc<State>, is_public: bool) -> Router {
    serve_console(state, console_routes(), is_public)
}

/// The console of a front. `routes` replace those of the same method and path. A front has no devices of its own, so it
/// refuses what none of `routes`, sessions and the admin listener serve.
pub(crate) fn console_router_with(state: Arc<State>, routes: Vec<Route>, is_public: bool) -> Router {
    let mut replaced: HashMap<_, _> =
        routes.into_iter().map(|route| ((route.method, route.path), route.handler)).collect();
    let known: HashSet<_> = session_routes()
        .into_iter()
        .chain(admin_routes())
        .map(|route| (route.method, route.path))
        .filter(|(_, path)| !OF_CELLS.contains(path))
        .collect();
    let of_front = |route: Route| {
        let key = (route.method.clone(), route.path);
        match replaced.remove(&key) {
            Some(handler) => Route { handler, ..route },
            None if known.contains(&key) => route,
            None => Route { handler: on(filter_of(&route.method), console::at_a_front), ..route },
        }
    };
    serve_console(state, console_routes().into_iter().map(of_front).collect(), is_public)
}

fn filter_of(method: &Method) -> MethodFilter {
    MethodFilter::try_from(method.clone()).unwrap_or(MethodFilter::GET)
}

fn serve_console(state: Arc<State>, routes: Vec<Route>, is_public: bool) -> Router {
    let api = Api::new(state, Listener::Console);
    let desk = Desk::from_ref(&api);
    let routes = routes.into_iter().filter_map(|route| route.guarded(&desk));
    let router = routes.fold(Router::new(), |router, (path, handler)| router.route(path, handler));
    let unknown = async || Problem::new(Code::NotFound, "unknown path; see the reference in the console");
    let page = Router::new()
        .route("/console", on(MethodFilter::GET, console::root))
        .route("/console/", on(MethodFilter::GET, console::page))
        .route("/console/{*path}", on(MethodFilter::GET, console::file));
    finish(page.nest(CONSOLE_API, router.fallback(unknown)), api, is_public)
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

/// Method, path and what a person needs, for every route of [`console_router`] below [`CONSOLE_API`].
pub fn console_paths() -> Vec<(Method, &'static str, Needed)> {
    let routes = console_routes().into_iter();
    routes.filter_map(|route| Some((route.method, route.path, route.needed?))).collect()
}

/// Method and path of the routes that only the console has.
pub fn session_paths() -> Vec<(Method, &'static str)> {
    session_routes().into_iter().map(|route| (route.method, route.path)).collect()
}

/// What the console needs apart from the routes of the other listeners.
fn session_routes() -> Vec<Route> {
    vec![
        get("/v1/session", session_handler::show).for_any_person(),
        post("/v1/session", session_handler::log_in).for_anybody(),
        delete("/v1/session", session_handler::log_out).for_any_person(),
        get("/v1/session/methods", session_handler::methods).for_anybody(),
        get("/v1/session/oidc/{name}", openid::start).for_anybody(),
        get("/v1/session/oidc/{name}/callback", openid::finish).for_anybody(),
        post("/v1/session/totp", session_handler::log_in_with_code).for_anybody(),
        post("/v1/session/link", session_handler::log_in_with_link).for_anybody(),
        post("/v1/session/confirm", session_handler::confirm).for_any_person(),
        put("/v1/session/password", session_handler::change_password).for_any_person(),
        post("/v1/session/totp-secret", session_handler::begin_totp).for_any_person().dangerous(),
        put("/v1/session/totp-secret", session_handler::turn_on_totp).for_any_person(),
        delete("/v1/session/totp-secret", session_handler::turn_off_totp).for_any_person().dangerous(),
        get("/v1/sessions", session_handler::list).for_any_person(),
        delete("/v1/sessions/{id}", session_handler::end).for_any_person(),
        get("/v1/people", person::list).on_node(Own),
        get("/v1/people/{id}", person::show).on_node(Own),
        patch("/v1/people/{id}", person::change).on_node(Own).dangerous(),
        delete("/v1/people/{id}", person::delete).on_node(Own).dangerous(),
        post("/v1/people/{id}/link", person::link).on_node(Own).dangerous(),
        put("/v1/people/{id}/roles/{role_app}", person::set_role).on_node(Own).dangerous(),
        delete("/v1/people/{id}/roles/{role_app}", person::remove_role).on_node(Own).dangerous(),
        get("/v1/invitations", person::invitations).on_node(Own),
        post("/v1/invitations", person::invite).on_node(Own).dangerous(),
        delete("/v1/invitations/{id}", person::withdraw).on_node(Own),
        post("/v1/invitations/accept", session_handler::accept_invitation).for_anybody(),
        post("/v1/campaigns/{id}/approve", campaign::draft::approve).in_app(Publish),
        delete("/v1/campaigns/{id}/approve", campaign::draft::withdraw).in_app(Publish),
        post("/v1/test-notifications", notification::publish_test).in_app(Devices),
        get("/openapi.json", page::console_openapi).for_anybody(),
        get("/v1/live", series::live).on_node(Read),
        get("/v1/apps/{app}/live", series::live_of_app).in_app(Read),
        get("/v1/tail", tail::show).in_app(Read),
        get("/v1/audit", audit::list).on_node(Manage),
        get("/v1/apps/{app}/audit", audit::of_app).in_app(Manage),
        get("/v1/apps/{app}/people", person::of_app).in_app(Own),
        get("/v1/apps/{app}/invitations", person::invitations_of_app).in_app(Own),
        delete("/v1/apps/{app}/invitations/{id}", person::withdraw_from_app).in_app(Own),
        post("/v1/apps/{app}/people", person::add_to_app).in_app(Own).dangerous(),
        delete("/v1/apps/{app}/people/{id}", person::remove_from_app).in_app(Own).dangerous(),
    ]
}

fn console_routes() -> Vec<Route> {
    let mut routes = session_routes();
    let mut known: HashSet<(Method, &'static str)> = HashSet::new();
    // Both listeners have some of the same routes.
    let both = admin_routes().into_iter().chain(public_routes());
    routes.extend(
        both.filter(|route| route.needed.is_some() && known.insert((route.method.clone(), route.path))),
    );
    routes
}

fn public_routes() -> Vec<Route> {
    let mut routes = app_routes();
    routes.extend([
        post("/v1/notifications", notification::publish).in_app(Publish),
        get("/v1/notifications", listing::notifications).in_app(Read),
        post("/v1/notifications/batch", batch::notifications).in_app(Publish),
        post("/v1/notifications/relay", relay::notifications),
        get("/v1/notifications/{id}", notification::show).in_app(Read),
        delete("/v1/notifications/{id}", notification::cancel).in_app(Publish),
        get("/v1/notifications/{id}/devices/{device}", notification::trace).in_app(Read),
        post("/v1/campaigns", campaign::create).in_app(Publish),
        get("/v1/campaigns", campaign::list).in_app(Read),
        get("/v1/campaigns/{id}", campaign::show).in_app(Read),
        patch("/v1/campaigns/{id}", campaign::draft::change).in_app(Publish),
        post("/v1/campaigns/{id}/estimate", campaign::draft::estimate).in_app(Read),
        get("/v1/campaigns/{id}/recipients/{user}", campaign::draft::uploaded).in_app(Read),
        delete("/v1/campaigns/{id}", campaign::delete).in_app(Publish),
        post("/v1/campaigns/{id}/recipients", campaign::upload).in_app(Publish),
        post("/v1/campaigns/{id}/start", campaign::draft::start).in_app(Publish),
        post("/v1/campaigns/{id}/pause", campaign::pause).in_app(Publish),
        post("/v1/campaigns/{id}/resume", campaign::resume).in_app(Publish),
        post("/v1/campaigns/{id}/abort", campaign::abort).in_app(Publish),
        post("/v1/activities", activity::start).in_app(Publish),
        get("/v1/activities", activity::list).in_app(Read),
        get("/v1/activities/{id}", activity::show).in_app(Read),
        patch("/v1/activities/{id}", activity::update).in_app(Publish),
        delete("/v1/activities/{id}", activity::end).in_app(Publish),
        get("/v1/activities/{id}/devices/{device}", activity::trace).in_app(Read),
        post("/v1/presence", presence::query).in_app(Read),
        get("/v1/topics", topic::list).in_app(Read),
        get("/v1/topics/{topic}", topic::show).in_app(Read),
        get("/v1/topics/{topic}/retained", topic::retained).in_app(Read),
        delete("/v1/topics/{topic}/retained", topic::delete_retained).in_app(Publish),
        post("/v1/devices", device::register).in_app(Manage),
        get("/v1/devices", device::list).in_app(Read),
        post("/v1/devices/batch", batch::devices).in_app(Manage),
        get("/v1/devices/{device}", device::show).in_app(Read),
        delete("/v1/devices/{device}", device::delete).in_app(Devices),
        post("/v1/devices/{device}/revoke", device::revoke).in_app(Devices),
        get("/v1/devices/{device}/push-tokens", push_token::list).in_app(Read),
        put("/v1/devices/{device}/push-tokens/{kind}", push_token::set).in_app(Devices),
        delete("/v1/devices/{device}/push-tokens/{kind}", push_token::remove).in_app(Devices),
        put("/v1/devices/{device}/push-tokens/{kind}/{name}", push_token::set).in_app(Devices),
        delete("/v1/devices/{device}/push-tokens/{kind}/{name}", push_token::remove).in_app(Devices),
        post("/v1/users/{user}/revoke", user::revoke).in_app(Devices),
        get("/v1/users/{user}/items", item::of_user).in_app(Read),
        delete("/v1/users/{user}/items", item::delete_of_user).in_app(Devices),
        get("/v1/users/{user}/items/counts", item::counts_of_user).in_app(Read),
        get("/v1/users/{user}/preferences", preferences::of_user).in_app(Read),
        put("/v1/users/{user}/preferences", preferences::set_of_user).in_app(Devices),
        delete("/v1/users/{user}/preferences", preferences::clear_of_user).in_app(Devices),
        get("/v1/devices/{device}/endpoints", endpoint::of_device).in_app(Read),
        delete("/v1/devices/{device}/endpoints/{id}", endpoint::revoke).in_app(Devices),
        get("/v1/devices/{device}/preferences", preferences::of_device).in_app(Read),
        put("/v1/devices/{device}/preferences", preferences::set_of_device).in_app(Devices),
        delete("/v1/devices/{device}/preferences", preferences::clear_of_device).in_app(Devices),
        get("/v1/devices/{device}/topics/{topic}/permission", topic_rules::explain).in_app(Read),
        get("/v1/push/invalidations", invalidation::list).in_app(Read),
        get("/v1/push/channels", channel::list).in_app(Read),
        post("/v1/push/channels", channel::create).in_app(Define),
        get("/v1/push/channels/{name}", channel::show).in_app(Read),
        patch("/v1/push/channels/{name}", channel::change).in_app(Define),
        delete("/v1/push/channels/{name}", channel::delete).in_app(Define),
        post("/v1/push/channels/{name}/broadcasts", channel::broadcast).in_app(Publish),
        get("/v1/push/broadcasts/{id}", channel::show_broadcast).in_app(Read),
        get("/v1/push/apns-channels", channel::list_apple).in_app(Read),
        delete("/v1/push/apns-channels/{id}", channel::delete_apple).in_app(Define),
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
        get("/v1/apps/{app}", app::show).in_app(Read),
        patch("/v1/apps/{app}", app::change).in_app(Manage),
        get("/openapi.json", page::openapi),
        get("/docs", page::docs),
        get("/", page::root),
    ]);
    routes
}

/// What the public and the admin listener have in common: the app of an `admin` key, or every app.
fn app_routes() -> Vec<Route> {
    vec![
        get("/v1/apps/{app}/keys", app::keys).in_app(Read),
        post("/v1/apps/{app}/keys", app::create_key).in_app(Manage).dangerous(),
        delete("/v1/apps/{app}/keys/{key}", app::revoke_key).in_app(Manage),
        get("/v1/apps/{app}/topic-rules", topic_rules::show).in_app(Read),
        put("/v1/apps/{app}/topic-rules", topic_rules::put).in_app(Manage),
        delete("/v1/apps/{app}/topic-rules", topic_rules::delete).in_app(Manage),
        get("/v1/apps/{app}/push", credential::list).in_app(Read),
        post("/v1/apps/{app}/push", credential::add).in_app(Manage),
        delete("/v1/apps/{app}/push/{id}", credential::remove).in_app(Manage),
        post("/v1/apps/{app}/push/{id}/test", credential::test).in_app(Manage),
        post("/v1/apps/{app}/push/{id}/rotate", credential::rotate).in_app(Manage),
        post("/v1/apps/{app}/push/{id}/restore", credential::restore).in_app(Manage),
        get("/v1/apps/{app}/experiments", experiment::list).in_app(Read),
        get("/v1/apps/{app}/experiments/{name}", experiment::show).in_app(Read),
        put("/v1/apps/{app}/experiments/{name}", experiment::put).in_app(Define),
        patch("/v1/apps/{app}/experiments/{name}", experiment::kill).in_app(Define),
        delete("/v1/apps/{app}/experiments/{name}", experiment::archive).in_app(Define),
        get("/v1/apps/{app}/experiments/{name}/devices/{device}", experiment::assigned).in_app(Read),
        get("/v1/apps/{app}/notices", notice::list).in_app(Read),
        get("/v1/apps/{app}/notices/{name}", notice::show).in_app(Read),
        put("/v1/apps/{app}/notices/{name}", notice::put).in_app(Define),
        delete("/v1/apps/{app}/notices/{name}", notice::end).in_app(Define),
        get("/v1/apps/{app}/quotas", quota::show).in_app(Read),
        get("/v1/apps/{app}/series", series::of_app).in_app(Read),
    ]
}

fn admin_routes() -> Vec<Route> {
    let mut routes = app_routes();
    routes.extend([
        get("/livez", health::livez),
        get("/healthz", health::livez),
        get("/readyz", health::readyz),
        get("/metrics", health::metrics),
        get("/v1/apps", app::list).on_node(Read),
        post("/v1/apps", app::create).on_node(Own),
        get("/v1/apps/{app}", app::show).in_app(Read),
        put("/v1/apps/{app}", app::mirror),
        patch("/v1/apps/{app}", app::change).in_app(Manage),
        delete("/v1/apps/{app}", app::delete).in_app(Own).dangerous(),
        put("/v1/apps/{app}/quotas", quota::put).on_node(Manage),
        patch("/v1/apps/{app}/quotas", quota::change).on_node(Manage),
        delete("/v1/apps/{app}/quotas", quota::clear).on_node(Manage),
        get("/v1/drain", drain::show).on_node(Read),
        put("/v1/drain", drain::begin).on_node(Manage),
        delete("/v1/drain", drain::cancel).on_node(Manage),
        get("/v1/nodes", nodes::list).on_node(Read),
        get("/v1/series", series::show).on_node(Read),
        get("/v1/doctor", inspection::doctor).on_node(Read),
        get("/v1/queues", queues::list).on_node(Read),
        get("/v1/configuration", inspection::configuration).on_node(Manage),
        get("/v1/cells", cell::not_a_front).on_node(Read),
        patch("/v1/cells/{cell}", cell::not_a_front).on_node(Manage),
        post("/v1/cells/{cell}/moves", cell::not_a_front).on_node(Manage),
        post("/v1/console/invitations", person::invite_by_operator),
        post("/v1/console/links", person::link_by_operator),
        get("/debug/pprof/profile", profile::cpu).on_node(Manage),
        get("/debug/pprof/heap", profile::heap).on_node(Manage),
        get("/openapi.json", page::admin_openapi),
    ]);
    routes
}

/// These routes; `rest` serves all other paths.
pub(crate) fn build_upon(routes: Vec<Route>, api: Api, rest: Router) -> Router {
    let sheds = api.listener() == Listener::Public;
    finish(register(routes), api, sheds).fallback_service(rest)
}

fn build(routes: Vec<Route>, api: Api) -> Router {
    let mut router = register(routes);
    let is_public = api.listener() == Listener::Public;
    if is_public {
        // The gateway serves these protocols on connections that begin with them.
        router = router
            .route("/socket.io/", on(MethodFilter::GET.or(MethodFilter::POST), connect::misdirected))
            .route("/mqtt", on(MethodFilter::GET, connect::misdirected))
            .route("/xmpp", on(MethodFilter::GET, connect::misdirected));
    }
    finish(router.fallback(async || Problem::new(Code::NotFound, "unknown path; see /docs")), api, is_public)
}

fn register(routes: Vec<Route>) -> Router<Api> {
    routes.into_iter().fold(Router::new(), |router, route| router.route(route.path, route.handler))
}

/// Middleware from the outside in: observe, origin, route.
/// `sheds`: refuses requests above the limit of concurrent ones.
fn finish(router: Router<Api>, api: Api, sheds: bool) -> Router {
    let mut router = router.method_not_allowed_fallback(async || {
        Problem::new(Code::MethodNotAllowed, "the header \"Allow\" lists the methods of this path")
    });
    if api.listener() == Listener::Public {
        router = router.layer(middleware::from_fn(origin::allow));
    }
    router
        .layer(middleware::from_fn_with_state(Arc::new(api.observer(sheds)), observe::observe))
        .with_state(api)
}

fn route(method: Method, path: &'static str, handler: MethodRouter<Api>) -> Route {
    Route { method, path, handler, needed: None, is_dangerous: false }
}

pub fn get<T: 'static>(path: &'static str, handler: impl Handler<T, Api>) -> Route {
    route(Method::GET, path, on(MethodFilter::GET, handler))
}

pub fn post<T: 'static>(path: &'static str, handler: impl Handler<T, Api>) -> Route {
    route(Method::POST, path, on(MethodFilter::POST, handler))
}

pub fn put<T: 'static>(path: &'static str, handler: impl Handler<T, Api>) -> Route {
    route(Method::PUT, path, on(MethodFilter::PUT, handler))
}

pub fn patch<T: 'static>(path: &'static str, handler: impl Handler<T, Api>) -> Route {
    route(Method::PATCH, path, on(MethodFilter::PATCH, handler))
}

pub fn delete<T: 'static>(path: &'static str, handler: impl Handler<T, Api>) -> Route {
    route(Method::DELETE, path, on(MethodFilter::DELETE, handler))
}
