/** Generated from crates/api/openapi-console.json by `npm run types`. Do not edit. */

export interface paths {
    "/openapi.json": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["showConsoleDocument"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/apps/{app}/audit": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["listAppAudit"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/apps/{app}/invitations": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["listAppInvitations"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/apps/{app}/invitations/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        delete: operations["withdrawAppInvitation"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/apps/{app}/live": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["appLive"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/apps/{app}/people": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["listAppPeople"];
        put?: never;
        post: operations["addAppPerson"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/apps/{app}/people/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        delete: operations["removeAppPerson"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/audit": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["listAudit"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/campaigns/{id}/approve": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["approveCampaign"];
        delete: operations["withdrawApproval"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/invitations": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["listInvitations"];
        put?: never;
        post: operations["invite"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/invitations/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        delete: operations["withdrawInvitation"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/invitations/accept": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["acceptInvitation"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/live": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["live"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/people": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["listPeople"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/people/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["showPerson"];
        put?: never;
        post?: never;
        delete: operations["deletePerson"];
        options?: never;
        head?: never;
        patch: operations["changePerson"];
        trace?: never;
    };
    "/v1/people/{id}/link": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["linkPerson"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/people/{id}/roles/{role_app}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put: operations["setRole"];
        post?: never;
        delete: operations["removeRole"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/session": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["showSession"];
        put?: never;
        post: operations["logIn"];
        delete: operations["logOut"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/session/confirm": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["confirmLogIn"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/session/link": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["logInWithLink"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/session/methods": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["showMethods"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/session/oidc/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["startOpenId"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/session/oidc/{name}/callback": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["finishOpenId"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/session/password": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put: operations["changePassword"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/session/totp": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["logInWithCode"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/session/totp-secret": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put: operations["turnOnTotp"];
        post: operations["beginTotp"];
        delete: operations["turnOffTotp"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sessions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["listSessions"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/sessions/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        delete: operations["endSession"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/tail": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["tail"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/test-notifications": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["sendTest"];
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
        Acceptance: {
            name: string;
            password: string;
            token: string;
        };
        AppInvitation: {
            /** Format: date-time */
            created_at: string;
            email: string;
            /** Format: date-time */
            expires_at: string;
            id: string;
            other_apps: boolean;
            /** @enum {string} */
            role: "viewer" | "support" | "author" | "operator" | "owner";
        };
        AppInvitations: {
            invitations: components["schemas"]["AppInvitation"][];
        };
        AppPeople: {
            next: string | null;
            people: components["schemas"]["AppPerson"][];
        };
        AppPerson: {
            /** Format: email */
            email: string;
            id: string;
            name: string;
            role: string | null;
        };
        Approval: {
            revision: number;
        };
        AuditEntry: {
            action: string;
            address: string;
            after: unknown;
            app: string | null;
            /** Format: date-time */
            at: string;
            before: unknown;
            /** @enum {string} */
            by: "person" | "key" | "operator_token" | "node";
            id: string;
            key: string | null;
            person: {
                email: string;
                id: string;
            } | null;
            request_id: string;
            target: string;
        };
        AuditPage: {
            entries: components["schemas"]["AuditEntry"][];
            next: string | null;
        };
        CampaignApproval: {
            approval: {
                /** Format: date-time */
                at: string;
                by: string;
            } | null;
            /** Format: uuid */
            id: string;
            revision: number;
            state: string;
        };
        Confirmation: {
            code?: string;
            password?: string;
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
        Invitations: {
            invitations: components["schemas"]["Invitation"][];
        };
        LinkToken: {
            token: string;
        };
        LiveFigures: {
            /** Format: date-time */
            at: string;
            figures: {
                [key: string]: number | null;
            };
            nodes?: {
                missing: boolean;
                name: string;
            }[];
            nodes_missing: number;
        };
        LogIn: {
            email: string;
            password: string;
        };
        /** @enum {string} */
        LogInFailure: "denied" | "no_role" | "no_email" | "unverified_email" | "email_domain" | "email_taken" | "disabled" | "unavailable" | "expired" | "invalid" | "too_many" | "busy" | "not_recent" | "other_person" | "no_session" | "failed";
        LogInLink: {
            /** Format: date-time */
            expires_at: string;
            link: string;
        };
        LogInStep: components["schemas"]["Session"] | {
            /** @constant */
            next: "totp";
            ticket: string;
        };
        Methods: {
            oidc: {
                name: string;
                title: string;
            }[];
            password: boolean;
        };
        NewAppPerson: {
            /** Format: email */
            email: string;
            /** @enum {string} */
            role: "viewer" | "support" | "author" | "operator" | "owner";
        };
        NewInvitation: {
            /** Format: email */
            email: string;
            roles: components["schemas"]["RoleInApp"][];
        };
        NewPassword: {
            current?: string;
            new: string;
        };
        NewRole: {
            /** @enum {string} */
            role: "viewer" | "support" | "author" | "operator" | "owner";
        };
        People: {
            next: string | null;
            people: components["schemas"]["Person"][];
        };
        Person: {
            /** Format: date-time */
            created_at: string;
            /** Format: date-time */
            disabled_at: string | null;
            /** Format: email */
            email: string;
            id: string;
            name: string;
            openid: {
                name: string | null;
                title: string;
            } | null;
            password: boolean;
            roles: components["schemas"]["RoleInApp"][];
            totp: boolean;
        };
        PersonChange: {
            disabled?: boolean;
            name?: string;
        };
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
        Receipt: {
            id: string;
            targets: number | null;
            warnings?: Record<string, never>[];
        };
        RecoveryCodes: {
            recovery_codes: string[];
        };
        RoleInApp: {
            app: string;
            mapped?: boolean;
            /** @enum {string} */
            role: "viewer" | "support" | "author" | "operator" | "owner";
        };
        SecondStep: {
            code: string;
            ticket: string;
        };
        Session: {
            apps: string[];
            /** Format: date-time */
            confirmed_until: string;
            csrf: string;
            /** Format: date-time */
            expires_at: string;
            front: boolean;
            permissions: {
                [key: string]: ("read" | "devices" | "publish" | "define" | "manage" | "own")[];
            };
            person: {
                /** Format: email */
                email: string;
                id: string;
                name: string;
                openid: {
                    name: string | null;
                    title: string;
                } | null;
                password: boolean;
                totp: boolean;
            };
            roles: components["schemas"]["RoleInApp"][];
        };
        Sessions: {
            sessions: {
                address: string;
                agent: string;
                /** Format: date-time */
                created_at: string;
                current: boolean;
                /** Format: date-time */
                expires_at: string;
                id: string;
                /** Format: date-time */
                last_seen_at: string;
            }[];
        };
        TailEvent: {
            /** Format: date-time */
            at: string;
            campaign?: string;
            count?: number;
            device?: string;
            devices?: {
                id: string;
                user?: string;
            }[];
            /** @enum {string} */
            event: "accepted" | "routed" | "kept" | "written" | "acked" | "opened" | "dropped" | "expired" | "push_skipped" | "push_sent" | "push_answered" | "token_invalidated" | "registered" | "connected" | "closed" | "rejected" | "campaign" | "exposed";
            id?: string;
            network?: string;
            node?: string;
            suppressed?: number;
            topic?: string;
            user?: string;
            users?: string[];
        } & {
            [key: string]: unknown;
        };
        TailText: {
            /** Format: date-time */
            at: string;
            events: components["schemas"]["TailEvent"][];
            gaps: ("lost" | "unresolved" | "devices")[];
            missing?: string[];
            nodes_missing: number;
            omitted: {
                [key: string]: number;
            };
        };
        TestNotification: {
            to: {
                devices?: string[];
                users?: string[];
            };
        } & {
            [key: string]: unknown;
        };
        TotpCode: {
            code: string;
        };
        TotpSetup: {
            secret: string;
            uri: string;
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
        Forbidden: {
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
    showConsoleDocument: {
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
                     *       "openapi": "3.1.0"
                     *     }
                     */
                    "application/json": Record<string, never>;
                };
            };
            403: components["responses"]["Forbidden"];
            429: components["responses"]["TooManyRequests"];
            500: components["responses"]["Internal"];
        };
    };
    listAppAudit: {
        parameters: {
            query?: {
                action?: string;
                after?: string;
                limit?: number;
                person?: string;
                since?: string;
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
                     *       "entries": [
                     *         {
                     *           "id": "9",
                     *           "at": "2026-01-15T09:30:00.000Z",
                     *           "by": "person",
                     *           "person": {
                     *             "id": "1",
                     *             "email": "ann@example.com"
                     *           },
                     *           "key": null,
                     *           "app": "dev",
                     *           "action": "POST /v1/apps/{app}/keys",
                     *           "target": "/v1/apps/dev/keys",
                     *           "before": null,
                     *           "after": {
                     *             "id": "7",
                     *             "name": "backend",
                     *             "scopes": [
                     *               "publish"
                     *             ],
                     *             "created_at": "2026-01-15T09:30:00.000Z"
                     *           },
                     *           "address": "192.0.2.1",
                     *           "request_id": "0198…"
                     *         }
                     *       ],
                     *       "next": null
                     *     }
                     */
                    "application/json": components["schemas"]["AuditPage"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    listAppInvitations: {
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
                     *       "invitations": [
                     *         {
                     *           "id": "3",
                     *           "email": "bob@example.com",
                     *           "role": "author",
                     *           "other_apps": false,
                     *           "created_at": "2026-01-15T09:30:00.000Z",
                     *           "expires_at": "2026-01-22T09:30:00.000Z"
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["AppInvitations"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    withdrawAppInvitation: {
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
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    appLive: {
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
                     * @example event: figures
                     *     data: {"at":"2026-01-15T09:30:00.000Z","nodes_missing":0,"figures":{"connections":18000.0,"publishes":12.5,…}}
                     */
                    "text/event-stream": string;
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    listAppPeople: {
        parameters: {
            query?: {
                after?: string;
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
                     *       "people": [
                     *         {
                     *           "id": "2",
                     *           "email": "bob@example.com",
                     *           "name": "Bob",
                     *           "role": "author"
                     *         }
                     *       ],
                     *       "next": null
                     *     }
                     */
                    "application/json": components["schemas"]["AppPeople"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    addAppPerson: {
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
                 *       "email": "bob@example.com",
                 *       "role": "author"
                 *     }
                 */
                "application/json": components["schemas"]["NewAppPerson"];
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
                     *       "id": "2",
                     *       "email": "bob@example.com",
                     *       "name": "Bob",
                     *       "role": "author"
                     *     }
                     */
                    "application/json": components["schemas"]["AppPerson"];
                };
            };
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
            403: components["responses"]["Forbidden"];
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
    removeAppPerson: {
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
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    listAudit: {
        parameters: {
            query?: {
                action?: string;
                after?: string;
                app?: string;
                limit?: number;
                person?: string;
                since?: string;
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
                     *       "entries": [
                     *         {
                     *           "id": "9",
                     *           "at": "2026-01-15T09:30:00.000Z",
                     *           "by": "person",
                     *           "person": {
                     *             "id": "1",
                     *             "email": "ann@example.com"
                     *           },
                     *           "key": null,
                     *           "app": "dev",
                     *           "action": "POST /v1/apps/{app}/keys",
                     *           "target": "/v1/apps/dev/keys",
                     *           "before": null,
                     *           "after": {
                     *             "id": "7",
                     *             "name": "backend",
                     *             "scopes": [
                     *               "publish"
                     *             ],
                     *             "created_at": "2026-01-15T09:30:00.000Z"
                     *           },
                     *           "address": "192.0.2.1",
                     *           "request_id": "0198…"
                     *         }
                     *       ],
                     *       "next": null
                     *     }
                     */
                    "application/json": components["schemas"]["AuditPage"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    approveCampaign: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "revision": 4
                 *     }
                 */
                "application/json": components["schemas"]["Approval"];
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
                     *       "id": "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c20",
                     *       "state": "draft",
                     *       "revision": 4,
                     *       "approval": {
                     *         "by": "ben@example.com",
                     *         "at": "2026-01-15T09:35:00.000Z"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["CampaignApproval"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
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
    withdrawApproval: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
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
                     *       "id": "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c20",
                     *       "state": "draft",
                     *       "revision": 4,
                     *       "approval": null
                     *     }
                     */
                    "application/json": components["schemas"]["CampaignApproval"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            429: components["responses"]["TooManyRequests"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    listInvitations: {
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
                     *       "invitations": [
                     *         {
                     *           "id": "3",
                     *           "email": "bob@example.com",
                     *           "roles": [
                     *             {
                     *               "app": "dev",
                     *               "role": "author"
                     *             }
                     *           ],
                     *           "created_at": "2026-01-15T09:30:00.000Z",
                     *           "expires_at": "2026-01-22T09:30:00.000Z"
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["Invitations"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    invite: {
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
                 *       "email": "bob@example.com",
                 *       "roles": [
                 *         {
                 *           "app": "dev",
                 *           "role": "author"
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
            403: components["responses"]["Forbidden"];
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
    withdrawInvitation: {
        parameters: {
            query?: never;
            header?: never;
            path: {
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
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    acceptInvitation: {
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
                 *       "token": "q8Zy…",
                 *       "name": "Bob",
                 *       "password": "correct horse battery"
                 *     }
                 */
                "application/json": components["schemas"]["Acceptance"];
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
                     *       "person": {
                     *         "id": "1",
                     *         "email": "ann@example.com",
                     *         "name": "Ann",
                     *         "password": true,
                     *         "totp": false,
                     *         "openid": null
                     *       },
                     *       "roles": [
                     *         {
                     *           "app": "*",
                     *           "role": "owner"
                     *         }
                     *       ],
                     *       "apps": [
                     *         "dev"
                     *       ],
                     *       "permissions": {
                     *         "dev": [
                     *           "read",
                     *           "devices",
                     *           "publish",
                     *           "define",
                     *           "manage",
                     *           "own"
                     *         ],
                     *         "*": [
                     *           "read",
                     *           "devices",
                     *           "publish",
                     *           "define",
                     *           "manage",
                     *           "own"
                     *         ]
                     *       },
                     *       "csrf": "q8Zy…",
                     *       "confirmed_until": "2026-01-15T09:40:00.000Z",
                     *       "expires_at": "2026-01-22T09:30:00.000Z",
                     *       "front": false
                     *     }
                     */
                    "application/json": components["schemas"]["Session"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
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
    live: {
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
                     * @example event: figures
                     *     data: {"at":"2026-01-15T09:30:00.000Z","nodes":[{"name":"node-1","missing":false}],"nodes_missing":0,"figures":{"connections":18000.0,"publishes":12.5,…}}
                     */
                    "text/event-stream": string;
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            409: components["responses"]["Conflict"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    listPeople: {
        parameters: {
            query?: {
                after?: string;
                limit?: number;
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
                     *       "people": [
                     *         {
                     *           "id": "1",
                     *           "email": "ann@example.com",
                     *           "name": "Ann",
                     *           "password": true,
                     *           "totp": false,
                     *           "openid": null,
                     *           "created_at": "2026-01-15T09:30:00.000Z",
                     *           "disabled_at": null,
                     *           "roles": [
                     *             {
                     *               "app": "dev",
                     *               "role": "author"
                     *             }
                     *           ]
                     *         }
                     *       ],
                     *       "next": null
                     *     }
                     */
                    "application/json": components["schemas"]["People"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    showPerson: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
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
                     *       "id": "1",
                     *       "email": "ann@example.com",
                     *       "name": "Ann",
                     *       "password": true,
                     *       "totp": false,
                     *       "openid": null,
                     *       "created_at": "2026-01-15T09:30:00.000Z",
                     *       "disabled_at": null,
                     *       "roles": [
                     *         {
                     *           "app": "dev",
                     *           "role": "author"
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["Person"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    deletePerson: {
        parameters: {
            query?: never;
            header?: never;
            path: {
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
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    changePerson: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "disabled": true
                 *     }
                 */
                "application/json": components["schemas"]["PersonChange"];
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
                     *       "id": "1",
                     *       "email": "ann@example.com",
                     *       "name": "Ann",
                     *       "password": true,
                     *       "totp": false,
                     *       "openid": null,
                     *       "created_at": "2026-01-15T09:30:00.000Z",
                     *       "disabled_at": null,
                     *       "roles": [
                     *         {
                     *           "app": "dev",
                     *           "role": "author"
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["Person"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
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
    linkPerson: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: never;
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
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    setRole: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
                role_app: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "role": "author"
                 *     }
                 */
                "application/json": components["schemas"]["NewRole"];
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
                     *       "id": "1",
                     *       "email": "ann@example.com",
                     *       "name": "Ann",
                     *       "password": true,
                     *       "totp": false,
                     *       "openid": null,
                     *       "created_at": "2026-01-15T09:30:00.000Z",
                     *       "disabled_at": null,
                     *       "roles": [
                     *         {
                     *           "app": "dev",
                     *           "role": "author"
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["Person"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
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
    removeRole: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
                role_app: string;
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
                     *       "id": "1",
                     *       "email": "ann@example.com",
                     *       "name": "Ann",
                     *       "password": true,
                     *       "totp": false,
                     *       "openid": null,
                     *       "created_at": "2026-01-15T09:30:00.000Z",
                     *       "disabled_at": null,
                     *       "roles": [
                     *         {
                     *           "app": "dev",
                     *           "role": "author"
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["Person"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    showSession: {
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
                     *       "person": {
                     *         "id": "1",
                     *         "email": "ann@example.com",
                     *         "name": "Ann",
                     *         "password": true,
                     *         "totp": false,
                     *         "openid": null
                     *       },
                     *       "roles": [
                     *         {
                     *           "app": "*",
                     *           "role": "owner"
                     *         }
                     *       ],
                     *       "apps": [
                     *         "dev"
                     *       ],
                     *       "permissions": {
                     *         "dev": [
                     *           "read",
                     *           "devices",
                     *           "publish",
                     *           "define",
                     *           "manage",
                     *           "own"
                     *         ],
                     *         "*": [
                     *           "read",
                     *           "devices",
                     *           "publish",
                     *           "define",
                     *           "manage",
                     *           "own"
                     *         ]
                     *       },
                     *       "csrf": "q8Zy…",
                     *       "confirmed_until": "2026-01-15T09:40:00.000Z",
                     *       "expires_at": "2026-01-22T09:30:00.000Z",
                     *       "front": false
                     *     }
                     */
                    "application/json": components["schemas"]["Session"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    logIn: {
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
                 *       "password": "correct horse battery"
                 *     }
                 */
                "application/json": components["schemas"]["LogIn"];
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
                     *       "person": {
                     *         "id": "1",
                     *         "email": "ann@example.com",
                     *         "name": "Ann",
                     *         "password": true,
                     *         "totp": false,
                     *         "openid": null
                     *       },
                     *       "roles": [
                     *         {
                     *           "app": "*",
                     *           "role": "owner"
                     *         }
                     *       ],
                     *       "apps": [
                     *         "dev"
                     *       ],
                     *       "permissions": {
                     *         "dev": [
                     *           "read",
                     *           "devices",
                     *           "publish",
                     *           "define",
                     *           "manage",
                     *           "own"
                     *         ],
                     *         "*": [
                     *           "read",
                     *           "devices",
                     *           "publish",
                     *           "define",
                     *           "manage",
                     *           "own"
                     *         ]
                     *       },
                     *       "csrf": "q8Zy…",
                     *       "confirmed_until": "2026-01-15T09:40:00.000Z",
                     *       "expires_at": "2026-01-22T09:30:00.000Z",
                     *       "front": false
                     *     }
                     */
                    "application/json": components["schemas"]["LogInStep"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            408: components["responses"]["BodyTimeout"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            429: components["responses"]["TooManyRequests"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    logOut: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
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
            403: components["responses"]["Forbidden"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    confirmLogIn: {
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
                 *       "password": "correct horse battery"
                 *     }
                 */
                "application/json": components["schemas"]["Confirmation"];
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
                     *       "person": {
                     *         "id": "1",
                     *         "email": "ann@example.com",
                     *         "name": "Ann",
                     *         "password": true,
                     *         "totp": false,
                     *         "openid": null
                     *       },
                     *       "roles": [
                     *         {
                     *           "app": "*",
                     *           "role": "owner"
                     *         }
                     *       ],
                     *       "apps": [
                     *         "dev"
                     *       ],
                     *       "permissions": {
                     *         "dev": [
                     *           "read",
                     *           "devices",
                     *           "publish",
                     *           "define",
                     *           "manage",
                     *           "own"
                     *         ],
                     *         "*": [
                     *           "read",
                     *           "devices",
                     *           "publish",
                     *           "define",
                     *           "manage",
                     *           "own"
                     *         ]
                     *       },
                     *       "csrf": "q8Zy…",
                     *       "confirmed_until": "2026-01-15T09:40:00.000Z",
                     *       "expires_at": "2026-01-22T09:30:00.000Z",
                     *       "front": false
                     *     }
                     */
                    "application/json": components["schemas"]["Session"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            408: components["responses"]["BodyTimeout"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            429: components["responses"]["TooManyRequests"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    logInWithLink: {
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
                 *       "token": "q8Zy…"
                 *     }
                 */
                "application/json": components["schemas"]["LinkToken"];
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
                     *       "person": {
                     *         "id": "1",
                     *         "email": "ann@example.com",
                     *         "name": "Ann",
                     *         "password": true,
                     *         "totp": false,
                     *         "openid": null
                     *       },
                     *       "roles": [
                     *         {
                     *           "app": "*",
                     *           "role": "owner"
                     *         }
                     *       ],
                     *       "apps": [
                     *         "dev"
                     *       ],
                     *       "permissions": {
                     *         "dev": [
                     *           "read",
                     *           "devices",
                     *           "publish",
                     *           "define",
                     *           "manage",
                     *           "own"
                     *         ],
                     *         "*": [
                     *           "read",
                     *           "devices",
                     *           "publish",
                     *           "define",
                     *           "manage",
                     *           "own"
                     *         ]
                     *       },
                     *       "csrf": "q8Zy…",
                     *       "confirmed_until": "2026-01-15T09:40:00.000Z",
                     *       "expires_at": "2026-01-22T09:30:00.000Z",
                     *       "front": false
                     *     }
                     */
                    "application/json": components["schemas"]["Session"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            408: components["responses"]["BodyTimeout"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            429: components["responses"]["TooManyRequests"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    showMethods: {
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
                     *       "password": true,
                     *       "oidc": [
                     *         {
                     *           "name": "corp",
                     *           "title": "Corp"
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["Methods"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            429: components["responses"]["TooManyRequests"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    startOpenId: {
        parameters: {
            query?: {
                confirm?: boolean;
                /** @example /console/devices */
                to?: string;
            };
            header?: never;
            path: {
                /** @example corp */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            303: {
                headers: {
                    Location: string;
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    finishOpenId: {
        parameters: {
            query?: {
                code?: string;
                error?: string;
                iss?: string;
                state?: string;
            };
            header?: never;
            path: {
                /** @example corp */
                name: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    "Set-Cookie": string;
                    [name: string]: unknown;
                };
                content: {
                    "text/html": string;
                };
            };
            303: {
                headers: {
                    Location: string;
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    changePassword: {
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
                 *       "current": "correct horse battery",
                 *       "new": "another long password"
                 *     }
                 */
                "application/json": components["schemas"]["NewPassword"];
            };
        };
        responses: {
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            408: components["responses"]["BodyTimeout"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            429: components["responses"]["TooManyRequests"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    logInWithCode: {
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
                 *       "ticket": "AAAA…",
                 *       "code": "123456"
                 *     }
                 */
                "application/json": components["schemas"]["SecondStep"];
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
                     *       "person": {
                     *         "id": "1",
                     *         "email": "ann@example.com",
                     *         "name": "Ann",
                     *         "password": true,
                     *         "totp": false,
                     *         "openid": null
                     *       },
                     *       "roles": [
                     *         {
                     *           "app": "*",
                     *           "role": "owner"
                     *         }
                     *       ],
                     *       "apps": [
                     *         "dev"
                     *       ],
                     *       "permissions": {
                     *         "dev": [
                     *           "read",
                     *           "devices",
                     *           "publish",
                     *           "define",
                     *           "manage",
                     *           "own"
                     *         ],
                     *         "*": [
                     *           "read",
                     *           "devices",
                     *           "publish",
                     *           "define",
                     *           "manage",
                     *           "own"
                     *         ]
                     *       },
                     *       "csrf": "q8Zy…",
                     *       "confirmed_until": "2026-01-15T09:40:00.000Z",
                     *       "expires_at": "2026-01-22T09:30:00.000Z",
                     *       "front": false
                     *     }
                     */
                    "application/json": components["schemas"]["Session"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            408: components["responses"]["BodyTimeout"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            429: components["responses"]["TooManyRequests"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    turnOnTotp: {
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
                 *       "code": "123456"
                 *     }
                 */
                "application/json": components["schemas"]["TotpCode"];
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
                     *       "recovery_codes": [
                     *         "0123456789-abcdef0123"
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["RecoveryCodes"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
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
    beginTotp: {
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
                     *       "secret": "GEZD…",
                     *       "uri": "otpauth://totp/Noroshi:ann%40example.com?secret=GEZD…"
                     *     }
                     */
                    "application/json": components["schemas"]["TotpSetup"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            409: components["responses"]["Conflict"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    turnOffTotp: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
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
            403: components["responses"]["Forbidden"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    listSessions: {
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
                     *       "sessions": [
                     *         {
                     *           "id": "7",
                     *           "created_at": "2026-01-15T09:30:00.000Z",
                     *           "last_seen_at": "2026-01-15T09:30:00.000Z",
                     *           "expires_at": "2026-01-22T09:30:00.000Z",
                     *           "address": "192.0.2.1",
                     *           "agent": "Mozilla/5.0 …",
                     *           "current": true
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["Sessions"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    endSession: {
        parameters: {
            query?: never;
            header?: never;
            path: {
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
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    tail: {
        parameters: {
            query?: {
                campaign?: string;
                device?: string;
                kinds?: string;
                notification?: string;
                topic?: string;
                user?: string;
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
                     * @example event: tail
                     *     data: {"at":"2026-01-15T09:30:00.250Z","events":[{"at":"2026-01-15T09:30:00.042Z","event":"written","id":"01a21db3-c4f0-7000-9892-99614f280a16","count":1,"devices":[{"id":"phone-1","user":"ann"}]}],"omitted":{"written":812},"gaps":[],"nodes_missing":0}
                     */
                    "text/event-stream": string;
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    sendTest: {
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
                 *       "to": {
                 *         "users": [
                 *           "u1"
                 *         ]
                 *       },
                 *       "notification": {
                 *         "title": "Test",
                 *         "body": "Sent from the console"
                 *       }
                 *     }
                 */
                "application/json": components["schemas"]["TestNotification"];
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
                     *       "id": "01a21db3-c4f0-7000-9892-99614f280a16",
                     *       "targets": 1
                     *     }
                     */
                    "application/json": components["schemas"]["Receipt"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
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
}
