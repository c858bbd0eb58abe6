/** Generated from crates/api/openapi-admin.json by `npm run types`. Do not edit. */

export interface paths {
    "/debug/pprof/heap": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["heapProfile"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/debug/pprof/profile": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["cpuProfile"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/healthz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["healthz"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/livez": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["livez"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/metrics": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["metrics"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/openapi.json": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["openapi"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/readyz": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["readyz"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/apps": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["apps"];
        put?: never;
        post: operations["createApp"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/apps/{app}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["app"];
        put: operations["mirrorApp"];
        post?: never;
        delete: operations["deleteApp"];
        options?: never;
        head?: never;
        patch: operations["changeApp"];
        trace?: never;
    };
    "/v1/apps/{app}/experiments": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["experiments"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/apps/{app}/experiments/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["experiment"];
        put: operations["putExperiment"];
        post?: never;
        delete: operations["archiveExperiment"];
        options?: never;
        head?: never;
        patch: operations["killExperiment"];
        trace?: never;
    };
    "/v1/apps/{app}/experiments/{name}/devices/{device}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["experimentAssigned"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/apps/{app}/keys": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["keys"];
        put?: never;
        post: operations["createKey"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/apps/{app}/keys/{key}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        delete: operations["revokeKey"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/apps/{app}/notices": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["notices"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/apps/{app}/notices/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["notice"];
        put: operations["putNotice"];
        post?: never;
        delete: operations["endNotice"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/apps/{app}/push": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["pushCredentials"];
        put?: never;
        post: operations["addPushCredential"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/apps/{app}/push/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        delete: operations["removePushCredential"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/apps/{app}/push/{id}/restore": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["restorePushTokens"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/apps/{app}/push/{id}/rotate": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["rotatePushCredential"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/apps/{app}/push/{id}/test": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["testPushCredential"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/apps/{app}/quotas": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["quotas"];
        put: operations["setQuotas"];
        post?: never;
        delete: operations["clearQuotas"];
        options?: never;
        head?: never;
        patch: operations["changeQuotas"];
        trace?: never;
    };
    "/v1/apps/{app}/series": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["appSeries"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/apps/{app}/topic-rules": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["topicRules"];
        put: operations["setTopicRules"];
        post?: never;
        delete: operations["deleteTopicRules"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/cells": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["cells"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/cells/{cell}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch: operations["changeCell"];
        trace?: never;
    };
    "/v1/cells/{cell}/moves": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["moveToCell"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/configuration": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["configuration"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/console/invitations": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["inviteByOperator"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/console/links": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["linkByOperator"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/doctor": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["doctor"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/drain": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["drain"];
        put: operations["beginDrain"];
        post?: never;
        delete: operations["cancelDrain"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/nodes": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["nodes"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/queues": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["queues"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/series": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["series"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        App: {
            audience: string | null;
            client_publish: string[];
            /** Format: date-time */
            created_at: string;
            essential_categories: string[];
            issuer: string | null;
            jwks_set: boolean;
            jwks_url: string | null;
            jwt_secret_set: boolean;
            name: string;
            number?: number;
        };
        AppChange: {
            audience?: string | null;
            client_publish?: string[] | null;
            essential_categories?: string[] | null;
            issuer?: string | null;
            jwks?: {
                keys: Record<string, never>[];
            } | null;
            /** Format: uri */
            jwks_url?: string | null;
            jwt_secret?: string | null;
        };
        AppMirror: {
            audience?: string | null;
            essential_categories?: string[] | null;
            issuer?: string | null;
            jwks?: {
                keys: Record<string, never>[];
            } | null;
            /** Format: uri */
            jwks_url?: string | null;
            jwt_secret?: string | null;
            keys: {
                /** Format: date-time */
                expires_at?: string | null;
                hash: string;
                name: string;
                scopes: components["schemas"]["Scope"][];
            }[];
            quotas?: components["schemas"]["QuotaLimits"] | null;
            topic_rules?: components["schemas"]["TopicRules"] | null;
        };
        Apps: {
            apps: components["schemas"]["App"][];
        };
        CallTree: {
            frames: {
                caller: number | null;
                name: number;
                own: number;
                total: number;
            }[];
            hz: number;
            names: string[];
            node: string | null;
            seconds: number;
            sum: number;
            unit: string;
        };
        Cell: {
            cell: string;
            devices: number;
            draining: boolean;
            leaving: number;
            oldest_waiting_seconds: number;
            up: boolean;
            url: string;
            users: number;
            waiting: number;
            weight: number;
        };
        CellChange: {
            draining?: boolean;
            weight?: number | null;
        };
        CellMove: {
            app?: string;
            device?: string;
            share?: number;
            to: string;
            user?: string;
        };
        CellMoved: {
            devices: number;
            users: number;
        };
        Cells: {
            cells: components["schemas"]["Cell"][];
        };
        Configuration: {
            node: string;
            settings: components["schemas"]["Setting"][];
        };
        DeviceFilter: {
            app_version?: {
                max?: string | null;
                min?: string | null;
            } | null;
            locales?: string[] | null;
            platforms?: components["schemas"]["Platform"][] | null;
            tags?: {
                [key: string]: string[];
            } | null;
            timezones?: string[] | null;
        };
        Doctor: {
            checks: components["schemas"]["DoctorCheck"][];
            connections: number;
            limit_nofile: number | null;
            node: string;
            room: {
                devices: number | null;
                limited_by: string | null;
            };
            sysctl: {
                [key: string]: string;
            };
            tls: boolean;
            verdict: components["schemas"]["DoctorVerdict"];
        };
        DoctorCheck: {
            advice: string;
            found: string;
            name: string;
            verdict: components["schemas"]["DoctorVerdict"];
            wanted: string;
        };
        /** @enum {string} */
        DoctorVerdict: "ok" | "warn" | "fail";
        Drain: {
            connections: number;
            deadline_at: string | null;
            eta_s: number | null;
            moved: number | null;
            rate: number | null;
            spread_ms: number | null;
            started_at: string | null;
            /** @enum {string} */
            state: "serving" | "draining" | "drained" | "stopping";
        };
        DrainOrder: {
            deadline?: string | number | null;
            rate?: number | null;
            spread?: string | number | null;
        };
        Experiment: {
            /** Format: date-time */
            archived_at: string | null;
            audience: components["schemas"]["ExperimentAudience"];
            /** Format: date-time */
            created_at: string;
            description: string | null;
            /** Format: date-time */
            ends_at: string | null;
            killed: boolean;
            name: string;
            overrides: {
                devices: {
                    [key: string]: string;
                };
                users: {
                    [key: string]: string;
                };
            };
            /** Format: date-time */
            starts_at: string | null;
            /** @enum {string} */
            state: "scheduled" | "running" | "killed" | "ended" | "archived";
            /** Format: date-time */
            updated_at: string;
            variants: components["schemas"]["ExperimentVariant"][];
        };
        ExperimentAssigned: {
            device: string;
            experiment: string;
            running: boolean;
            user: string | null;
            variant: string | null;
        };
        ExperimentAudience: {
            condition?: string | null;
            devices?: components["schemas"]["DeviceFilter"] | null;
        };
        ExperimentChange: {
            killed: boolean;
        };
        Experiments: {
            experiments: components["schemas"]["Experiment"][];
            next: string | null;
        };
        ExperimentVariant: {
            data?: unknown;
            name: string;
            weight: number;
        };
        Invitation: {
            /** Format: date-time */
            created_at: string;
            /** Format: email */
            email: string;
            /** Format: date-time */
            expires_at: string;
            id: string;
            link?: string;
            roles: components["schemas"]["RoleInApp"][];
        };
        Key: {
            /** Format: date-time */
            created_at: string;
            /** Format: date-time */
            expires_at: string | null;
            id: string;
            key?: string;
            name: string;
            scopes: components["schemas"]["Scope"][];
        };
        Keys: {
            keys: components["schemas"]["Key"][];
        };
        LogInLink: {
            /** Format: date-time */
            expires_at: string;
            link: string;
        };
        NamedPerson: {
            /** Format: email */
            email: string;
        };
        NewApp: {
            audience?: string | null;
            essential_categories?: string[] | null;
            issuer?: string | null;
            jwks?: {
                keys: Record<string, never>[];
            } | null;
            /** Format: uri */
            jwks_url?: string | null;
            jwt_secret?: string | null;
            name: string;
        };
        NewExperiment: {
            audience?: components["schemas"]["ExperimentAudience"] | null;
            description?: string | null;
            /** Format: date-time */
            ends_at?: string | null;
            /** @default false */
            killed?: boolean | null;
            overrides?: {
                devices?: {
                    [key: string]: string;
                } | null;
                users?: {
                    [key: string]: string;
                } | null;
            } | null;
            /** Format: date-time */
            starts_at?: string | null;
            variants: components["schemas"]["ExperimentVariant"][];
        };
        NewInvitation: {
            /** Format: email */
            email: string;
            roles: components["schemas"]["RoleInApp"][];
        };
        NewKey: {
            /** Format: date-time */
            expires_at?: string | null;
            name: string;
            scopes: components["schemas"]["Scope"][];
        };
        NewNotice: {
            /** Format: date-time */
            announced_at?: string | null;
            data?: unknown;
            /** Format: date-time */
            ends_at: string;
            locales?: {
                [key: string]: {
                    data?: unknown;
                    notification?: components["schemas"]["Shown"] | null;
                };
            } | null;
            notification?: components["schemas"]["Shown"] | null;
            /** Format: date-time */
            starts_at: string;
        };
        NewPushCredential: {
            /** @default 100 */
            batch_size?: number;
            broadcast_endpoint?: string;
            /** @default MARKETING */
            category?: string;
            certificate?: string;
            channels_endpoint?: string;
            client_id?: string;
            client_secret?: string;
            /** @default 4 */
            concurrency?: number;
            /** @default false */
            device_tokens?: boolean;
            endpoint?: string;
            /**
             * @default production
             * @enum {string|null}
             */
            environment?: "production" | "sandbox" | null;
            key?: string;
            key_id?: string;
            name?: string | null;
            previous_secret?: string;
            private_key?: string;
            quota?: Record<string, never>;
            secret?: string;
            /** @enum {string} */
            service: "apns" | "fcm" | "webpush" | "webhook" | "hms" | "wns";
            service_account?: Record<string, never>;
            subject?: string;
            team_id?: string;
            tenant_id?: string;
            /** @default 10 */
            timeout_seconds?: number;
            token_endpoint?: string;
            topic?: string;
            url?: string;
        };
        Node: {
            admin: string;
            connections: number;
            cpu: number | null;
            deliveries_per_second: number;
            /** @enum {string} */
            drain: "serving" | "draining" | "drained" | "stopping";
            epoch: string | null;
            http: string;
            lease_ms: number | null;
            name: string;
            roles: ("api" | "gateway" | "sender" | "front")[];
            /** Format: date-time */
            started_at: string;
            this: boolean;
            version: string;
        };
        Nodes: {
            nodes: components["schemas"]["Node"][];
        };
        Notice: {
            /** Format: date-time */
            announced_at: string | null;
            /** Format: date-time */
            created_at: string;
            data?: unknown;
            /** Format: date-time */
            ends_at: string;
            locales: {
                [key: string]: {
                    data?: unknown;
                    notification?: Record<string, never>;
                };
            };
            name: string;
            notification?: Record<string, never>;
            /** Format: date-time */
            starts_at: string;
            /** @enum {string} */
            state: "scheduled" | "announced" | "active" | "over";
            /** Format: date-time */
            updated_at: string;
        };
        Notices: {
            next: string | null;
            notices: components["schemas"]["Notice"][];
        };
        /** @enum {string} */
        Platform: "ios" | "android" | "web" | "console" | "other";
        /**
         * @example {
         *       "type": "/docs#unknown_field",
         *       "title": "A field is unknown",
         *       "status": 400,
         *       "code": "unknown_field",
         *       "detail": "unknown field `tll`, expected one of `to`, `when`, `ttl`",
         *       "field": "tll"
         *     }
         */
        Problem: {
            /** @enum {string} */
            code: "invalid_json" | "corrupt_encoding" | "invalid_field" | "unknown_field" | "invalid_parameter" | "too_many_targets" | "unauthorized" | "forbidden" | "csrf" | "confirm_log_in" | "not_found" | "method_not_allowed" | "body_timeout" | "idempotency_conflict" | "already_exists" | "endpoint_gone" | "not_connected" | "misdirected" | "not_at_a_front" | "wrong_state" | "revision_conflict" | "campaign_incomplete" | "approval_required" | "own_approval" | "credential_test_failed" | "push_key_missing" | "limit_exceeded" | "body_too_large" | "data_too_large" | "push_payload_too_large" | "too_many_lines" | "unsupported_media_type" | "unsupported_encoding" | "too_many_requests" | "quota_exceeded" | "internal" | "not_built" | "push_service_rejected" | "push_service_failed" | "overloaded" | "unavailable" | "cell_unavailable" | "disk_full";
            detail: string;
            field?: string;
            status: number;
            title: string;
            /** Format: uri-reference */
            type: string;
        };
        PushCredential: {
            /** Format: date-time */
            created_at: string;
            /** @enum {string} */
            environment: "production" | "sandbox";
            id: string;
            name: string;
            /** @enum {string} */
            service: "apns" | "fcm" | "webpush" | "webhook" | "hms" | "wns";
            settings: Record<string, never>;
            state?: components["schemas"]["PushCredentialState"] | null;
        };
        PushCredentials: {
            credentials: components["schemas"]["PushCredential"][];
        };
        PushCredentialState: {
            /** @enum {string} */
            breaker: "closed" | "open" | "half-open";
            connections: number;
            in_flight: number;
            last_error: {
                /** Format: date-time */
                at: string;
                reason: string;
            } | null;
            node: string | null;
            /** Format: date-time */
            open_until: string | null;
            /** Format: date-time */
            paused_until: string | null;
            reason: string | null;
            waiting: number;
        };
        PushRotation: {
            credential: {
                [key: string]: unknown;
            };
            device?: string | null;
            push_token?: components["schemas"]["PushToken"] | null;
        };
        PushTest: {
            device?: string | null;
            push_token?: components["schemas"]["PushToken"] | null;
        };
        PushTested: {
            /** @enum {string} */
            answer: "accepted" | "gone" | "suspect" | "refused" | "later" | "not_configured" | "expired" | "no_answer";
            explain: string;
            reason: string | null;
        };
        PushToken: {
            /** @enum {string|null} */
            environment?: "production" | "sandbox" | null;
            /** @constant */
            service: "apns";
            token: string;
            topic?: string | null;
        } | {
            /** @constant */
            service: "fcm";
            token: string;
        } | {
            endpoint: string;
            keys: {
                auth: string;
                p256dh: string;
            };
            /** @constant */
            service: "webpush";
        } | {
            provider: string;
            /** @constant */
            service: "webhook";
            token: string;
        } | {
            /** @constant */
            service: "hms";
            token: string;
        } | {
            channel: string;
            /** @constant */
            service: "wns";
        };
        Queue: {
            bytes: number | null;
            failed: number | null;
            in_work: number | null;
            of: {
                [key: string]: string;
            };
            oldest_s: number | null;
            /** @enum {string} */
            queue: "store" | "connections" | "cluster" | "links" | "push" | "push_batches" | "campaigns" | "broadcasts" | "shared_subscriptions" | "intake" | "events" | "cells" | "receipts";
            waiting: number | null;
        };
        Queues: {
            leads: boolean;
            node: string | null;
            queues: components["schemas"]["Queue"][];
        };
        Quota: {
            limit: number | null;
            /** @enum {string} */
            quota: "connections" | "connects_per_second" | "devices" | "subscriptions_per_device" | "topics" | "publishes_per_second" | "deliveries_per_second" | "inbox_rows" | "inbox_bytes" | "retained_bytes" | "campaigns" | "pushes_per_second" | "endpoints" | "experiments" | "keys";
            refused: number;
            /** @enum {string} */
            scope: "node" | "store";
            /** @enum {string} */
            source: "app" | "default";
            used: number | null;
        };
        QuotaChange: {
            campaigns?: number | "unlimited" | null;
            connections?: number | "unlimited" | null;
            connects_per_second?: number | "unlimited" | null;
            deliveries_per_second?: number | "unlimited" | null;
            devices?: number | "unlimited" | null;
            endpoints?: number | "unlimited" | null;
            experiments?: number | "unlimited" | null;
            inbox_bytes?: number | "unlimited" | null;
            inbox_rows?: number | "unlimited" | null;
            keys?: number | "unlimited" | null;
            publishes_per_second?: number | "unlimited" | null;
            pushes_per_second?: number | "unlimited" | null;
            retained_bytes?: number | "unlimited" | null;
            subscriptions_per_device?: number | "unlimited" | null;
            topics?: number | "unlimited" | null;
        };
        QuotaLimits: {
            campaigns?: number | "unlimited";
            connections?: number | "unlimited";
            connects_per_second?: number | "unlimited";
            deliveries_per_second?: number | "unlimited";
            devices?: number | "unlimited";
            endpoints?: number | "unlimited";
            experiments?: number | "unlimited";
            inbox_bytes?: number | "unlimited";
            inbox_rows?: number | "unlimited";
            keys?: number | "unlimited";
            publishes_per_second?: number | "unlimited";
            pushes_per_second?: number | "unlimited";
            retained_bytes?: number | "unlimited";
            subscriptions_per_device?: number | "unlimited";
            topics?: number | "unlimited";
        };
        Quotas: {
            app: string;
            quotas: components["schemas"]["Quota"][];
        };
        RestoredTokens: {
            restored: number;
        };
        RestoreTokens: {
            reason?: string | null;
            /** Format: date-time */
            since?: string | null;
        };
        RoleInApp: {
            app: string;
            /** @enum {string} */
            role: "viewer" | "support" | "author" | "operator" | "owner";
        };
        /** @enum {string} */
        Scope: "publish" | "devices" | "read" | "admin";
        Series: {
            covered_s: number[];
            /** Format: date-time */
            from: string;
            missing: components["schemas"]["SeriesSpan"][];
            nodes: {
                missing: components["schemas"]["SeriesSpan"][];
                name: string;
            }[] | null;
            nodes_count: number;
            series: components["schemas"]["SeriesFigure"][];
            step_s: number;
            /** Format: date-time */
            until: string;
        };
        SeriesFigure: {
            /** @enum {string} */
            kind: "gauge" | "count" | "time";
            /** @enum {string} */
            name: "connections" | "log_ins" | "log_ins_refused" | "publishes" | "deliveries" | "acks" | "delivery_p50" | "delivery_p99" | "ack_p50" | "ack_p99" | "pushes_accepted" | "pushes_refused" | "push_retries" | "push_p50" | "push_p99" | "push_backlog" | "delivery_backlog" | "store_backlog" | "requests" | "request_errors" | "request_p50" | "request_p99" | "drops" | "overloads" | "quota_refusals" | "cpu" | "memory" | "bytes_written";
            points: (number | null)[];
            unit: string;
        };
        SeriesSpan: {
            /** Format: date-time */
            from: string;
            /** Format: date-time */
            until: string;
        };
        Setting: {
            default: string | null;
            description: string;
            key: string;
            masked: boolean;
            place: string | null;
            range: string;
            /** @enum {string} */
            source: "default" | "file" | "environment" | "flag";
            unit: string;
            value: string | null;
        };
        Shown: {
            body?: string | null;
            /** Format: uri */
            image?: string | null;
            title?: string | null;
            /** Format: uri */
            url?: string | null;
        };
        Status: {
            status: string;
        };
        TopicRule: {
            /** @enum {string} */
            allow: "anyone" | "token" | "server" | "ask";
            topic: string;
        };
        TopicRules: {
            ask?: components["schemas"]["TopicWebhook"] | null;
            publish?: components["schemas"]["TopicRule"][] | null;
            subscribe?: components["schemas"]["TopicRule"][] | null;
        };
        TopicWebhook: {
            /** @default 5m */
            expires_in?: string | null;
            secret?: string | null;
            secret_set?: boolean | null;
            /** @default 3s */
            timeout?: string | null;
            url: string;
        };
    };
    responses: {
        BadRequest: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        BodyTimeout: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        Conflict: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        DiskFull: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        Internal: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        MethodNotAllowed: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        NotBuilt: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        NotFound: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        Overloaded: {
            headers: {
                "Retry-After"?: number;
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        TooLarge: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        TooManyRequests: {
            headers: {
                "Retry-After"?: number;
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        Unauthorized: {
            headers: {
                "WWW-Authenticate"?: string;
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
        UnsupportedMediaType: {
            headers: {
                "Accept-Encoding"?: "gzip, zstd";
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
    };
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    heapProfile: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/octet-stream": string;
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            501: components["responses"]["NotBuilt"];
            503: components["responses"]["Overloaded"];
        };
    };
    cpuProfile: {
        parameters: {
            query?: {
                format?: "pprof" | "tree";
                hz?: number;
                seconds?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "node": "gateway-1",
                     *       "seconds": 10,
                     *       "hz": 99,
                     *       "unit": "nanoseconds",
                     *       "sum": 20202020,
                     *       "names": [
                     *         "shard",
                     *         "write"
                     *       ],
                     *       "frames": [
                     *         {
                     *           "caller": null,
                     *           "name": 0,
                     *           "total": 20202020,
                     *           "own": 10101010
                     *         },
                     *         {
                     *           "caller": 0,
                     *           "name": 1,
                     *           "total": 10101010,
                     *           "own": 10101010
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["CallTree"];
                    "application/octet-stream": string;
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            409: components["responses"]["Conflict"];
            501: components["responses"]["NotBuilt"];
            503: components["responses"]["Overloaded"];
        };
    };
    healthz: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "status": "ok"
                     *     }
                     */
                    "application/json": components["schemas"]["Status"];
                };
            };
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    livez: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "status": "ok"
                     *     }
                     */
                    "application/json": components["schemas"]["Status"];
                };
            };
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    metrics: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "text/plain; version=0.0.4; charset=utf-8": string;
                };
            };
            500: components["responses"]["Internal"];
        };
    };
    openapi: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": Record<string, never>;
                };
            };
        };
    };
    readyz: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "status": "ready"
                     *     }
                     */
                    "application/json": components["schemas"]["Status"];
                };
            };
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    apps: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "apps": [
                     *         {
                     *           "name": "shop",
                     *           "created_at": "2026-01-15T09:30:00.000Z",
                     *           "jwt_secret_set": true,
                     *           "jwks_url": null,
                     *           "jwks_set": false,
                     *           "issuer": null,
                     *           "audience": null,
                     *           "client_publish": [],
                     *           "essential_categories": []
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["Apps"];
                };
            };
            401: components["responses"]["Unauthorized"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    createApp: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "name": "shop"
                 *     }
                 */
                "application/json": components["schemas"]["NewApp"];
            };
        };
        responses: {
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "name": "shop",
                     *       "created_at": "2026-01-15T09:30:00.000Z",
                     *       "jwt_secret_set": true,
                     *       "jwks_url": null,
                     *       "jwks_set": false,
                     *       "issuer": null,
                     *       "audience": null,
                     *       "client_publish": [],
                     *       "essential_categories": []
                     *     }
                     */
                    "application/json": components["schemas"]["App"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            408: components["responses"]["BodyTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    app: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                app: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "name": "shop",
                     *       "created_at": "2026-01-15T09:30:00.000Z",
                     *       "jwt_secret_set": true,
                     *       "jwks_url": null,
                     *       "jwks_set": false,
                     *       "issuer": null,
                     *       "audience": null,
                     *       "client_publish": [],
                     *       "essential_categories": []
                     *     }
                     */
                    "application/json": components["schemas"]["App"];
                };
            };
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    mirrorApp: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                app: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "keys": [
                 *         {
                 *           "name": "backend",
                 *           "hash": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
                 *           "scopes": [
                 *             "publish",
                 *             "read"
                 *           ]
                 *         }
                 *       ]
                 *     }
                 */
                "application/json": components["schemas"]["AppMirror"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "name": "shop",
                     *       "created_at": "2026-01-15T09:30:00.000Z",
                     *       "jwt_secret_set": true,
                     *       "jwks_url": null,
                     *       "jwks_set": false,
                     *       "issuer": null,
                     *       "audience": null,
                     *       "client_publish": [],
                     *       "essential_categories": [],
                     *       "number": 1
                     *     }
                     */
                    "application/json": components["schemas"]["App"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            408: components["responses"]["BodyTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    deleteApp: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                app: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    changeApp: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                app: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "jwt_secret": "at least thirty-two bytes of secret"
                 *     }
                 */
                "application/json": components["schemas"]["AppChange"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "name": "shop",
                     *       "created_at": "2026-01-15T09:30:00.000Z",
                     *       "jwt_secret_set": true,
                     *       "jwks_url": null,
                     *       "jwks_set": false,
                     *       "issuer": null,
                     *       "audience": null,
                     *       "client_publish": [],
                     *       "essential_categories": []
                     *     }
                     */
                    "application/json": components["schemas"]["App"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["BodyTimeout"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    experiments: {
        parameters: {
            query?: {
                after?: string;
                archived?: boolean;
                limit?: number;
            };
            header?: never;
            path: {
                app: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "experiments": [
                     *         {
                     *           "name": "checkout-button",
                     *           "state": "running",
                     *           "variants": [
                     *             {
                     *               "name": "control",
                     *               "weight": 50
                     *             },
                     *             {
                     *               "name": "green",
                     *               "weight": 50,
                     *               "data": {
                     *                 "colour": "#0a0"
                     *               }
                     *             }
                     *           ],
                     *           "starts_at": "2026-01-15T09:30:00.000Z",
                     *           "ends_at": "2026-02-15T09:30:00.000Z",
                     *           "audience": {
                     *             "condition": "'news' in topics",
                     *             "devices": {
                     *               "platforms": [
                     *                 "ios"
                     *               ],
                     *               "app_version": {
                     *                 "min": "1.2"
                     *               }
                     *             }
                     *           },
                     *           "overrides": {
                     *             "users": {
                     *               "tester-1": "green"
                     *             },
                     *             "devices": {}
                     *           },
                     *           "killed": false,
                     *           "created_at": "2026-01-15T09:30:00.000Z",
                     *           "updated_at": "2026-01-15T09:30:00.000Z",
                     *           "archived_at": null
                     *         }
                     *       ],
                     *       "next": null
                     *     }
                     */
                    "application/json": components["schemas"]["Experiments"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    experiment: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                app: string;
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "name": "checkout-button",
                     *       "state": "running",
                     *       "variants": [
                     *         {
                     *           "name": "control",
                     *           "weight": 50
                     *         },
                     *         {
                     *           "name": "green",
                     *           "weight": 50,
                     *           "data": {
                     *             "colour": "#0a0"
                     *           }
                     *         }
                     *       ],
                     *       "starts_at": "2026-01-15T09:30:00.000Z",
                     *       "ends_at": "2026-02-15T09:30:00.000Z",
                     *       "audience": {
                     *         "condition": "'news' in topics",
                     *         "devices": {
                     *           "platforms": [
                     *             "ios"
                     *           ],
                     *           "app_version": {
                     *             "min": "1.2"
                     *           }
                     *         }
                     *       },
                     *       "overrides": {
                     *         "users": {
                     *           "tester-1": "green"
                     *         },
                     *         "devices": {}
                     *       },
                     *       "killed": false,
                     *       "created_at": "2026-01-15T09:30:00.000Z",
                     *       "updated_at": "2026-01-15T09:30:00.000Z",
                     *       "archived_at": null
                     *     }
                     */
                    "application/json": components["schemas"]["Experiment"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    putExperiment: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                app: string;
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "variants": [
                 *         {
                 *           "name": "control",
                 *           "weight": 50
                 *         },
                 *         {
                 *           "name": "green",
                 *           "weight": 50,
                 *           "data": {
                 *             "colour": "#0a0"
                 *           }
                 *         }
                 *       ],
                 *       "starts_at": "2026-01-15T09:30:00Z",
                 *       "ends_at": "2036-02-15T09:30:00Z",
                 *       "audience": {
                 *         "condition": "'news' in topics",
                 *         "devices": {
                 *           "platforms": [
                 *             "ios"
                 *           ],
                 *           "app_version": {
                 *             "min": "1.2"
                 *           }
                 *         }
                 *       },
                 *       "overrides": {
                 *         "users": {
                 *           "tester-1": "green"
                 *         }
                 *       },
                 *       "killed": false
                 *     }
                 */
                "application/json": components["schemas"]["NewExperiment"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "name": "checkout-button",
                     *       "state": "running",
                     *       "variants": [
                     *         {
                     *           "name": "control",
                     *           "weight": 50
                     *         },
                     *         {
                     *           "name": "green",
                     *           "weight": 50,
                     *           "data": {
                     *             "colour": "#0a0"
                     *           }
                     *         }
                     *       ],
                     *       "starts_at": "2026-01-15T09:30:00.000Z",
                     *       "ends_at": "2026-02-15T09:30:00.000Z",
                     *       "audience": {
                     *         "condition": "'news' in topics",
                     *         "devices": {
                     *           "platforms": [
                     *             "ios"
                     *           ],
                     *           "app_version": {
                     *             "min": "1.2"
                     *           }
                     *         }
                     *       },
                     *       "overrides": {
                     *         "users": {
                     *           "tester-1": "green"
                     *         },
                     *         "devices": {}
                     *       },
                     *       "killed": false,
                     *       "created_at": "2026-01-15T09:30:00.000Z",
                     *       "updated_at": "2026-01-15T09:30:00.000Z",
                     *       "archived_at": null
                     *     }
                     */
                    "application/json": components["schemas"]["Experiment"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["BodyTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            429: components["responses"]["TooManyRequests"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    archiveExperiment: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                app: string;
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    killExperiment: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                app: string;
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "killed": true
                 *     }
                 */
                "application/json": components["schemas"]["ExperimentChange"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "name": "checkout-button",
                     *       "state": "killed",
                     *       "variants": [
                     *         {
                     *           "name": "control",
                     *           "weight": 50
                     *         },
                     *         {
                     *           "name": "green",
                     *           "weight": 50,
                     *           "data": {
                     *             "colour": "#0a0"
                     *           }
                     *         }
                     *       ],
                     *       "starts_at": "2026-01-15T09:30:00.000Z",
                     *       "ends_at": "2026-02-15T09:30:00.000Z",
                     *       "audience": {
                     *         "condition": "'news' in topics",
                     *         "devices": {
                     *           "platforms": [
                     *             "ios"
                     *           ],
                     *           "app_version": {
                     *             "min": "1.2"
                     *           }
                     *         }
                     *       },
                     *       "overrides": {
                     *         "users": {
                     *           "tester-1": "green"
                     *         },
                     *         "devices": {}
                     *       },
                     *       "killed": true,
                     *       "created_at": "2026-01-15T09:30:00.000Z",
                     *       "updated_at": "2026-01-15T09:30:00.000Z",
                     *       "archived_at": null
                     *     }
                     */
                    "application/json": components["schemas"]["Experiment"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["BodyTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    experimentAssigned: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                app: string;
                device: string;
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "experiment": "checkout-button",
                     *       "device": "d1",
                     *       "user": "u1",
                     *       "running": true,
                     *       "variant": "green"
                     *     }
                     */
                    "application/json": components["schemas"]["ExperimentAssigned"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    keys: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                app: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "keys": [
                     *         {
                     *           "id": "7",
                     *           "name": "backend",
                     *           "scopes": [
                     *             "publish",
                     *             "read"
                     *           ],
                     *           "created_at": "2026-01-15T09:30:00.000Z",
                     *           "expires_at": "2027-01-15T09:30:00.000Z"
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["Keys"];
                };
            };
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    createKey: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                app: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "name": "backend",
                 *       "scopes": [
                 *         "publish",
                 *         "read"
                 *       ],
                 *       "expires_at": "2027-01-15T09:30:00Z"
                 *     }
                 */
                "application/json": components["schemas"]["NewKey"];
            };
        };
        responses: {
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "id": "7",
                     *       "name": "backend",
                     *       "scopes": [
                     *         "publish",
                     *         "read"
                     *       ],
                     *       "created_at": "2026-01-15T09:30:00.000Z",
                     *       "expires_at": "2027-01-15T09:30:00.000Z",
                     *       "key": "nk_…"
                     *     }
                     */
                    "application/json": components["schemas"]["Key"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["BodyTimeout"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            429: components["responses"]["TooManyRequests"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    revokeKey: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                app: string;
                key: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    notices: {
        parameters: {
            query?: {
                after?: string;
                archived?: boolean;
                limit?: number;
            };
            header?: never;
            path: {
                app: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "notices": [
                     *         {
                     *           "name": "payments",
                     *           "state": "active",
                     *           "announced_at": "2026-01-14T09:30:00.000Z",
                     *           "starts_at": "2026-01-15T09:30:00.000Z",
                     *           "ends_at": "2026-01-15T11:00:00.000Z",
                     *           "notification": {
                     *             "title": "Payments are unavailable until 11:00"
                     *           },
                     *           "data": {
                     *             "services": [
                     *               "payments"
                     *             ]
                     *           },
                     *           "locales": {
                     *             "ja": {
                     *               "notification": {
                     *                 "title": "決済は11時まで休止します"
                     *               }
                     *             }
                     *           },
                     *           "created_at": "2026-01-15T09:30:00.000Z",
                     *           "updated_at": "2026-01-15T09:30:00.000Z"
                     *         }
                     *       ],
                     *       "next": null
                     *     }
                     */
                    "application/json": components["schemas"]["Notices"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    notice: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                app: string;
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "name": "payments",
                     *       "state": "active",
                     *       "announced_at": "2026-01-14T09:30:00.000Z",
                     *       "starts_at": "2026-01-15T09:30:00.000Z",
                     *       "ends_at": "2026-01-15T11:00:00.000Z",
                     *       "notification": {
                     *         "title": "Payments are unavailable until 11:00"
                     *       },
                     *       "data": {
                     *         "services": [
                     *           "payments"
                     *         ]
                     *       },
                     *       "locales": {
                     *         "ja": {
                     *           "notification": {
                     *             "title": "決済は11時まで休止します"
                     *           }
                     *         }
                     *       },
                     *       "created_at": "2026-01-15T09:30:00.000Z",
                     *       "updated_at": "2026-01-15T09:30:00.000Z"
                     *     }
                     */
                    "application/json": components["schemas"]["Notice"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    putNotice: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                app: string;
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "announced_at": "2026-01-14T09:30:00Z",
                 *       "starts_at": "2026-01-15T09:30:00Z",
                 *       "ends_at": "2036-01-15T11:00:00Z",
                 *       "notification": {
                 *         "title": "Payments are unavailable until 11:00"
                 *       },
                 *       "data": {
                 *         "services": [
                 *           "payments"
                 *         ]
                 *       },
                 *       "locales": {
                 *         "ja": {
                 *           "notification": {
                 *             "title": "決済は11時まで休止します"
                 *           }
                 *         }
                 *       }
                 *     }
                 */
                "application/json": components["schemas"]["NewNotice"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "name": "payments",
                     *       "state": "active",
                     *       "announced_at": "2026-01-14T09:30:00.000Z",
                     *       "starts_at": "2026-01-15T09:30:00.000Z",
                     *       "ends_at": "2026-01-15T11:00:00.000Z",
                     *       "notification": {
                     *         "title": "Payments are unavailable until 11:00"
                     *       },
                     *       "data": {
                     *         "services": [
                     *           "payments"
                     *         ]
                     *       },
                     *       "locales": {
                     *         "ja": {
                     *           "notification": {
                     *             "title": "決済は11時まで休止します"
                     *           }
                     *         }
                     *       },
                     *       "created_at": "2026-01-15T09:30:00.000Z",
                     *       "updated_at": "2026-01-15T09:30:00.000Z"
                     *     }
                     */
                    "application/json": components["schemas"]["Notice"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["BodyTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    endNotice: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                app: string;
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    pushCredentials: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                app: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "credentials": [
                     *         {
                     *           "id": "3",
                     *           "service": "apns",
                     *           "environment": "production",
                     *           "name": "",
                     *           "settings": {
                     *             "key_id": "ABC123DEFG",
                     *             "team_id": "DEF123GHIJ",
                     *             "topic": "com.example.app"
                     *           },
                     *           "created_at": "2026-01-15T09:30:00.000Z",
                     *           "state": {
                     *             "node": "sender-1",
                     *             "breaker": "open",
                     *             "reason": "InvalidProviderToken",
                     *             "open_until": "2026-01-15T10:31:07.000Z",
                     *             "paused_until": null,
                     *             "connections": 1,
                     *             "in_flight": 0,
                     *             "waiting": 12,
                     *             "last_error": {
                     *               "at": "2026-01-15T10:30:37.000Z",
                     *               "reason": "InvalidProviderToken"
                     *             }
                     *           }
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["PushCredentials"];
                };
            };
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    addPushCredential: {
        parameters: {
            query?: {
                replace?: boolean;
            };
            header?: never;
            path: {
                app: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewPushCredential"];
            };
        };
        responses: {
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "id": "3",
                     *       "service": "apns",
                     *       "environment": "production",
                     *       "name": "",
                     *       "settings": {
                     *         "key_id": "ABC123DEFG",
                     *         "team_id": "DEF123GHIJ",
                     *         "topic": "com.example.app"
                     *       },
                     *       "created_at": "2026-01-15T09:30:00.000Z"
                     *     }
                     */
                    "application/json": components["schemas"]["PushCredential"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["BodyTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    removePushCredential: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                app: string;
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    restorePushTokens: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                app: string;
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["RestoreTokens"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "restored": 1200
                     *     }
                     */
                    "application/json": components["schemas"]["RestoredTokens"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["BodyTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    rotatePushCredential: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                app: string;
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "credential": {
                 *         "key": "-----BEGIN PRIVATE KEY-----\nMIGTAgEA…\n-----END PRIVATE KEY-----",
                 *         "key_id": "XYZ987WVUT"
                 *       },
                 *       "device": "3f1c0a9be2d84d6f8a57c1e09b6d2f44"
                 *     }
                 */
                "application/json": components["schemas"]["PushRotation"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "id": "3",
                     *       "service": "apns",
                     *       "environment": "production",
                     *       "name": "",
                     *       "settings": {
                     *         "key_id": "ABC123DEFG",
                     *         "team_id": "DEF123GHIJ",
                     *         "topic": "com.example.app"
                     *       },
                     *       "created_at": "2026-01-15T09:30:00.000Z"
                     *     }
                     */
                    "application/json": components["schemas"]["PushCredential"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["BodyTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    testPushCredential: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                app: string;
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PushTest"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "answer": "refused",
                     *       "reason": "BadTopic",
                     *       "explain": "the push service rejected it permanently"
                     *     }
                     */
                    "application/json": components["schemas"]["PushTested"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["BodyTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    quotas: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                app: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "app": "shop",
                     *       "quotas": [
                     *         {
                     *           "quota": "devices",
                     *           "limit": 1000,
                     *           "source": "app",
                     *           "used": 17,
                     *           "refused": 0,
                     *           "scope": "store"
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["Quotas"];
                };
            };
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    setQuotas: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                app: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "devices": 1000,
                 *       "publishes_per_second": 50,
                 *       "topics": "unlimited"
                 *     }
                 */
                "application/json": components["schemas"]["QuotaLimits"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "app": "shop",
                     *       "quotas": [
                     *         {
                     *           "quota": "devices",
                     *           "limit": 1000,
                     *           "source": "app",
                     *           "used": 17,
                     *           "refused": 0,
                     *           "scope": "store"
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["Quotas"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["BodyTimeout"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    clearQuotas: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                app: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    changeQuotas: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                app: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "devices": 2000,
                 *       "topics": null
                 *     }
                 */
                "application/json": components["schemas"]["QuotaChange"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "app": "shop",
                     *       "quotas": [
                     *         {
                     *           "quota": "devices",
                     *           "limit": 1000,
                     *           "source": "app",
                     *           "used": 17,
                     *           "refused": 0,
                     *           "scope": "store"
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["Quotas"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["BodyTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    appSeries: {
        parameters: {
            query?: {
                from?: string;
                names?: string;
                node?: string;
                step?: "10s" | "1m" | "1h";
                until?: string;
            };
            header?: never;
            path: {
                app: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "from": "2026-01-15T09:00:00.000Z",
                     *       "until": "2026-01-15T09:00:30.000Z",
                     *       "step_s": 10,
                     *       "covered_s": [
                     *         10,
                     *         10,
                     *         0
                     *       ],
                     *       "series": [
                     *         {
                     *           "name": "publishes",
                     *           "unit": "notifications",
                     *           "kind": "count",
                     *           "points": [
                     *             120,
                     *             131,
                     *             null
                     *           ]
                     *         }
                     *       ],
                     *       "nodes": null,
                     *       "nodes_count": 1,
                     *       "missing": []
                     *     }
                     */
                    "application/json": components["schemas"]["Series"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    topicRules: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                app: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "subscribe": [
                     *         {
                     *           "topic": "user/{user}/#",
                     *           "allow": "anyone"
                     *         },
                     *         {
                     *           "topic": "team-{claim:team}",
                     *           "allow": "anyone"
                     *         },
                     *         {
                     *           "topic": "paid/#",
                     *           "allow": "token"
                     *         },
                     *         {
                     *           "topic": "room/+",
                     *           "allow": "ask"
                     *         },
                     *         {
                     *           "topic": "public/*",
                     *           "allow": "anyone"
                     *         }
                     *       ],
                     *       "publish": [
                     *         {
                     *           "topic": "chat/{user}/#",
                     *           "allow": "anyone"
                     *         }
                     *       ],
                     *       "ask": {
                     *         "url": "https://app.example/topics",
                     *         "secret_set": true,
                     *         "timeout": "3s",
                     *         "expires_in": "5m"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["TopicRules"];
                };
            };
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    setTopicRules: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                app: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "subscribe": [
                 *         {
                 *           "topic": "user/{user}/#",
                 *           "allow": "anyone"
                 *         },
                 *         {
                 *           "topic": "team-{claim:team}",
                 *           "allow": "anyone"
                 *         },
                 *         {
                 *           "topic": "paid/#",
                 *           "allow": "token"
                 *         },
                 *         {
                 *           "topic": "room/+",
                 *           "allow": "ask"
                 *         },
                 *         {
                 *           "topic": "public/*",
                 *           "allow": "anyone"
                 *         }
                 *       ],
                 *       "publish": [
                 *         {
                 *           "topic": "chat/{user}/#",
                 *           "allow": "anyone"
                 *         }
                 *       ],
                 *       "ask": {
                 *         "url": "https://app.example/topics",
                 *         "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
                 *         "timeout": "3s",
                 *         "expires_in": "5m"
                 *       }
                 *     }
                 */
                "application/json": components["schemas"]["TopicRules"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "subscribe": [
                     *         {
                     *           "topic": "user/{user}/#",
                     *           "allow": "anyone"
                     *         },
                     *         {
                     *           "topic": "team-{claim:team}",
                     *           "allow": "anyone"
                     *         },
                     *         {
                     *           "topic": "paid/#",
                     *           "allow": "token"
                     *         },
                     *         {
                     *           "topic": "room/+",
                     *           "allow": "ask"
                     *         },
                     *         {
                     *           "topic": "public/*",
                     *           "allow": "anyone"
                     *         }
                     *       ],
                     *       "publish": [
                     *         {
                     *           "topic": "chat/{user}/#",
                     *           "allow": "anyone"
                     *         }
                     *       ],
                     *       "ask": {
                     *         "url": "https://app.example/topics",
                     *         "secret_set": true,
                     *         "timeout": "3s",
                     *         "expires_in": "5m"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["TopicRules"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["BodyTimeout"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    deleteTopicRules: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                app: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    cells: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "cells": [
                     *         {
                     *           "cell": "eu-1",
                     *           "url": "https://eu-1.push.internal",
                     *           "up": true,
                     *           "draining": false,
                     *           "weight": 2,
                     *           "devices": 120000,
                     *           "users": 80000,
                     *           "leaving": 0,
                     *           "waiting": 3,
                     *           "oldest_waiting_seconds": 1
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["Cells"];
                };
            };
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    changeCell: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                cell: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "draining": true
                 *     }
                 */
                "application/json": components["schemas"]["CellChange"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "cell": "eu-1",
                     *       "url": "https://eu-1.push.internal",
                     *       "up": true,
                     *       "draining": true,
                     *       "weight": 2,
                     *       "devices": 120000,
                     *       "users": 80000,
                     *       "leaving": 0,
                     *       "waiting": 3,
                     *       "oldest_waiting_seconds": 1
                     *     }
                     */
                    "application/json": components["schemas"]["Cell"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["BodyTimeout"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    moveToCell: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                cell: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "to": "eu-2",
                 *       "share": 10
                 *     }
                 */
                "application/json": components["schemas"]["CellMove"];
            };
        };
        responses: {
            202: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "users": 8000,
                     *       "devices": 12000
                     *     }
                     */
                    "application/json": components["schemas"]["CellMoved"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["BodyTimeout"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    configuration: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "node": "gateway-1",
                     *       "settings": [
                     *         {
                     *           "key": "gateway.ping_interval",
                     *           "value": "\"4m\"",
                     *           "default": "\"4m\"",
                     *           "masked": false,
                     *           "source": "default",
                     *           "place": null,
                     *           "unit": "duration",
                     *           "range": "1s to 1h"
                     *         },
                     *         {
                     *           "key": "store.url",
                     *           "value": "\"postgres://noroshi:…@db/noroshi\"",
                     *           "default": null,
                     *           "masked": true,
                     *           "source": "file",
                     *           "place": "/etc/noroshi.toml:12",
                     *           "unit": "url",
                     *           "range": "postgres://, postgresql://"
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["Configuration"];
                };
            };
            401: components["responses"]["Unauthorized"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    inviteByOperator: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "email": "ann@example.com",
                 *       "roles": [
                 *         {
                 *           "app": "*",
                 *           "role": "owner"
                 *         }
                 *       ]
                 *     }
                 */
                "application/json": components["schemas"]["NewInvitation"];
            };
        };
        responses: {
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "id": "3",
                     *       "email": "bob@example.com",
                     *       "roles": [
                     *         {
                     *           "app": "dev",
                     *           "role": "author"
                     *         }
                     *       ],
                     *       "created_at": "2026-01-15T09:30:00.000Z",
                     *       "expires_at": "2026-01-22T09:30:00.000Z",
                     *       "link": "/console/invitation#token=…"
                     *     }
                     */
                    "application/json": components["schemas"]["Invitation"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["BodyTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    linkByOperator: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "email": "ann@example.com"
                 *     }
                 */
                "application/json": components["schemas"]["NamedPerson"];
            };
        };
        responses: {
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "link": "/console/link#token=…",
                     *       "expires_at": "2026-01-15T09:30:00.000Z"
                     *     }
                     */
                    "application/json": components["schemas"]["LogInLink"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["BodyTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    doctor: {
        parameters: {
            query?: {
                connections?: number;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "node": "gateway-1",
                     *       "verdict": "warn",
                     *       "connections": 100000,
                     *       "tls": true,
                     *       "checks": [
                     *         {
                     *           "name": "listen queue",
                     *           "verdict": "warn",
                     *           "found": "net.core.somaxconn = 128",
                     *           "wanted": "4096",
                     *           "advice": "set net.core.somaxconn = 4096"
                     *         }
                     *       ],
                     *       "sysctl": {
                     *         "net.core.somaxconn": "4096"
                     *       },
                     *       "limit_nofile": null,
                     *       "room": {
                     *         "devices": 213000,
                     *         "limited_by": "memory"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["Doctor"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    drain: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "state": "draining",
                     *       "connections": 118000,
                     *       "moved": 32000,
                     *       "rate": 1000,
                     *       "spread_ms": 5000,
                     *       "started_at": "2026-01-15T09:30:00.000Z",
                     *       "deadline_at": null,
                     *       "eta_s": 118
                     *     }
                     */
                    "application/json": components["schemas"]["Drain"];
                };
            };
            401: components["responses"]["Unauthorized"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    beginDrain: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: {
            content: {
                /**
                 * @example {
                 *       "rate": 1000,
                 *       "spread": "5s",
                 *       "deadline": "10m"
                 *     }
                 */
                "application/json": components["schemas"]["DrainOrder"];
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "state": "draining",
                     *       "connections": 118000,
                     *       "moved": 32000,
                     *       "rate": 1000,
                     *       "spread_ms": 5000,
                     *       "started_at": "2026-01-15T09:30:00.000Z",
                     *       "deadline_at": null,
                     *       "eta_s": 118
                     *     }
                     */
                    "application/json": components["schemas"]["Drain"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            408: components["responses"]["BodyTimeout"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    cancelDrain: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "state": "serving",
                     *       "connections": 150000,
                     *       "moved": null,
                     *       "rate": null,
                     *       "spread_ms": null,
                     *       "started_at": null,
                     *       "deadline_at": null,
                     *       "eta_s": null
                     *     }
                     */
                    "application/json": components["schemas"]["Drain"];
                };
            };
            401: components["responses"]["Unauthorized"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    nodes: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "nodes": [
                     *         {
                     *           "name": "gateway-1",
                     *           "this": true,
                     *           "epoch": "9f27c3d81b44e06a",
                     *           "roles": [
                     *             "gateway"
                     *           ],
                     *           "http": "https://gw1.example.com",
                     *           "admin": "http://10.0.0.11:9090",
                     *           "version": "0.1.0",
                     *           "started_at": "2026-01-15T09:30:00.000Z",
                     *           "lease_ms": 9120,
                     *           "connections": 18000,
                     *           "deliveries_per_second": 6120.5,
                     *           "cpu": 0.412,
                     *           "drain": "serving"
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["Nodes"];
                };
            };
            401: components["responses"]["Unauthorized"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    queues: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "node": "sender-1",
                     *       "leads": true,
                     *       "queues": [
                     *         {
                     *           "queue": "push",
                     *           "of": {
                     *             "environment": "production",
                     *             "lane": "direct",
                     *             "service": "apns"
                     *           },
                     *           "waiting": 12,
                     *           "in_work": null,
                     *           "bytes": null,
                     *           "oldest_s": null,
                     *           "failed": null
                     *         },
                     *         {
                     *           "queue": "events",
                     *           "of": {
                     *             "sink": "kafka"
                     *           },
                     *           "waiting": 4000,
                     *           "in_work": null,
                     *           "bytes": 1048576,
                     *           "oldest_s": 2.5,
                     *           "failed": 0
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["Queues"];
                };
            };
            401: components["responses"]["Unauthorized"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    series: {
        parameters: {
            query?: {
                from?: string;
                names?: string;
                node?: string;
                step?: "10s" | "1m" | "1h";
                until?: string;
            };
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "from": "2026-01-15T09:00:00.000Z",
                     *       "until": "2026-01-15T09:00:30.000Z",
                     *       "step_s": 10,
                     *       "covered_s": [
                     *         10,
                     *         10,
                     *         0
                     *       ],
                     *       "series": [
                     *         {
                     *           "name": "publishes",
                     *           "unit": "notifications",
                     *           "kind": "count",
                     *           "points": [
                     *             120,
                     *             131,
                     *             null
                     *           ]
                     *         }
                     *       ],
                     *       "nodes": [
                     *         {
                     *           "name": "node-1",
                     *           "missing": []
                     *         }
                     *       ],
                     *       "nodes_count": 1,
                     *       "missing": []
                     *     }
                     */
                    "application/json": components["schemas"]["Series"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
}
