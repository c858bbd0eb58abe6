//! HTTP: provider, consumer and admin API, OpenAPI and its page
