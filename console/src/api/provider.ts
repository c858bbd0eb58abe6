/** Generated from crates/api/openapi.json by `npm run types`. Do not edit. */

export interface paths {
    "/": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["root"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/docs": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["docs"];
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
    "/push/{token}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["discoverEndpoint"];
        put?: never;
        post: operations["postToEndpoint"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/push/message/{token}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        delete: operations["cancelMessage"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/push/receipt/{token}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["receipt"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/activities": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["activities"];
        put?: never;
        post: operations["startActivity"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/activities/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["activity"];
        put?: never;
        post?: never;
        delete: operations["endActivity"];
        options?: never;
        head?: never;
        patch: operations["updateActivity"];
        trace?: never;
    };
    "/v1/activities/{id}/devices/{device}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["activityDevice"];
        put?: never;
        post?: never;
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
        put?: never;
        post?: never;
        delete?: never;
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
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
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
    "/v1/campaigns": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["campaigns"];
        put?: never;
        post: operations["createCampaign"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/campaigns/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["campaign"];
        put?: never;
        post?: never;
        delete: operations["deleteCampaign"];
        options?: never;
        head?: never;
        patch: operations["changeCampaign"];
        trace?: never;
    };
    "/v1/campaigns/{id}/abort": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["abortCampaign"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/campaigns/{id}/estimate": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["estimateCampaign"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/campaigns/{id}/pause": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["pauseCampaign"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/campaigns/{id}/recipients": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["uploadRecipients"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/campaigns/{id}/recipients/{user}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["campaignRecipient"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/campaigns/{id}/resume": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["resumeCampaign"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/campaigns/{id}/start": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["startCampaign"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/connect": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["connect"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/devices": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["devices"];
        put?: never;
        post: operations["registerDevice"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/devices/{device}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["device"];
        put?: never;
        post?: never;
        delete: operations["deleteDevice"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/devices/{device}/endpoints": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["listDeviceEndpoints"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/devices/{device}/endpoints/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        delete: operations["deleteDeviceEndpoint"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/devices/{device}/preferences": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["preferencesOfDevice"];
        put: operations["setPreferencesOfDevice"];
        post?: never;
        delete: operations["clearPreferencesOfDevice"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/devices/{device}/push-tokens": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["listDevicePushTokens"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/devices/{device}/push-tokens/{kind}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put: operations["setDevicePushToken"];
        post?: never;
        delete: operations["removeDevicePushToken"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/devices/{device}/push-tokens/{kind}/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put: operations["setDeviceNamedPushToken"];
        post?: never;
        delete: operations["removeDeviceNamedPushToken"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/devices/{device}/revoke": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["revokeDevice"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/devices/{device}/topics/{topic}/permission": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["topicPermission"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/devices/batch": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["importDevices"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/events": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["events"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/me": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["me"];
        put?: never;
        post?: never;
        delete: operations["deleteMe"];
        options?: never;
        head?: never;
        patch: operations["changeMe"];
        trace?: never;
    };
    "/v1/me/endpoints": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["endpoints"];
        put?: never;
        post: operations["createEndpoint"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/me/endpoints/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        delete: operations["deleteEndpoint"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/me/exposures": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["exposures"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/me/inbox": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["inbox"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/me/inbox/ack": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["ack"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/me/items": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["items"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch: operations["changeItems"];
        trace?: never;
    };
    "/v1/me/items/counts": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["itemCounts"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/me/opened": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["opened"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/me/preferences": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["ownPreferences"];
        put: operations["setOwnPreferences"];
        post?: never;
        delete: operations["clearOwnPreferences"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/me/presence": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put: operations["setPresence"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/me/push-token": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put: operations["setPushToken"];
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/me/push-tokens": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["listOwnPushTokens"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/me/push-tokens/{kind}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put: operations["setOwnPushToken"];
        post?: never;
        delete: operations["removeOwnPushToken"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/me/push-tokens/{kind}/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put: operations["setOwnNamedPushToken"];
        post?: never;
        delete: operations["removeOwnNamedPushToken"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/me/topics/{topic}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put: operations["subscribe"];
        post?: never;
        delete: operations["unsubscribe"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/me/user/preferences": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["preferencesOfOwnUser"];
        put: operations["setPreferencesOfOwnUser"];
        post?: never;
        delete: operations["clearPreferencesOfOwnUser"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/notifications": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["notifications"];
        put?: never;
        post: operations["publish"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/notifications/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["notification"];
        put?: never;
        post?: never;
        delete: operations["cancel"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/notifications/{id}/devices/{device}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["trace"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/notifications/batch": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["publishBatch"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/notifications/relay": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["relay"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/presence": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["presence"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/push/apns-channels": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["appleChannels"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/push/apns-channels/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post?: never;
        delete: operations["deleteAppleChannel"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/push/broadcasts/{id}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["broadcastState"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/push/channels": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["channels"];
        put?: never;
        post: operations["createChannel"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/push/channels/{name}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["channel"];
        put?: never;
        post?: never;
        delete: operations["deleteChannel"];
        options?: never;
        head?: never;
        patch: operations["changeChannel"];
        trace?: never;
    };
    "/v1/push/channels/{name}/broadcasts": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["broadcast"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/push/invalidations": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["invalidations"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/topics": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["topics"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/topics/{topic}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["topic"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/topics/{topic}/retained": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["retained"];
        put?: never;
        post?: never;
        delete: operations["deleteRetained"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/users/{user}/items": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["itemsOfUser"];
        put?: never;
        post?: never;
        delete: operations["deleteItemsOfUser"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/users/{user}/items/counts": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["itemCountsOfUser"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/users/{user}/preferences": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get: operations["preferencesOfUser"];
        put: operations["setPreferencesOfUser"];
        post?: never;
        delete: operations["clearPreferencesOfUser"];
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/v1/users/{user}/revoke": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        post: operations["revokeUser"];
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
        Ack: {
            ids: string[];
        };
        Acked: {
            acked: number;
        };
        Action: {
            id: string;
            title: string;
            /** Format: uri */
            url?: string | null;
        };
        Activities: {
            activities: components["schemas"]["Activity"][];
            next: string | null;
        };
        Activity: {
            android: components["schemas"]["ActivityAndroid"] | null;
            attributes: Record<string, never> | null;
            attributes_type: string;
            change?: {
                /** Format: uuid */
                notification: string | null;
                /** @enum {integer} */
                priority: 5 | 10;
            };
            content_state: Record<string, never> | null;
            /** Format: date-time */
            created_at: string;
            devices: number;
            /** Format: date-time */
            dismissal_date: string | null;
            /** Format: date-time */
            ended_at: string | null;
            /** Format: date-time */
            expires_at: string;
            frequent_updates: boolean;
            high_priority_left: number;
            id: string;
            /** @enum {string|null} */
            ios_via: "apns" | "fcm" | null;
            /** @enum {string} */
            join: "invited" | "anyone";
            progress?: {
                collected: boolean;
                counts: {
                    [key: string]: number;
                };
                current: number;
                reasons: {
                    count: number;
                    /** @enum {string} */
                    outcome: "kept" | "written" | "acked" | "offline" | "inactive" | "slow" | "expired" | "collapsed" | "cancelled" | "evicted" | "unknown" | "push_not_configured" | "pushed" | "push_refused" | "push_token_gone" | "push_token_suspect" | "no_push_token" | "push_not_needed" | "push_expired" | "opened" | "held_out" | "muted" | "channel_off" | "quiet" | "capped" | "push_muted" | "push_channel_off" | "push_capped";
                    reason: string | null;
                }[];
                waiting: number;
            };
            relevance: number | null;
            /** Format: date-time */
            stale_date: string | null;
            /** @enum {string} */
            state: "active" | "ended" | "expired";
            target?: {
                condition?: string;
                /** @enum {string} */
                kind: "users" | "devices" | "topic" | "condition" | "everyone";
                named?: number;
                topic?: string;
            };
            /** Format: date-time */
            updated_at: string;
            version: number;
            /** @enum {string} */
            when: "active" | "connected" | "stored";
        };
        ActivityAlert: {
            body?: string | null;
            sound?: string | null;
            title?: string | null;
        };
        ActivityAndroid: {
            progress?: {
                end_icon?: string | null;
                indeterminate?: boolean | null;
                max?: number | null;
                points?: {
                    color?: string | null;
                    position: number;
                }[] | null;
                segments?: {
                    color?: string | null;
                    length: number;
                }[] | null;
                start_icon?: string | null;
                tracker_icon?: string | null;
                value?: number | null;
            } | null;
            short_text?: string | null;
            text?: string | null;
            title?: string | null;
        };
        ActivityDevice: {
            /** Format: date-time */
            at: string | null;
            attempts?: components["schemas"]["PushAttempt"][];
            /** @enum {string} */
            cause?: "not_targeted" | "registered_later" | "user_changed_later" | "subscribed_later" | "not_reached" | "not_recorded" | "push_pending" | "quota" | "push_service_paused" | "no_token" | "awaiting_token" | "next_state" | "invalid_token" | "expired_token" | "suspended_token" | "push_not_configured" | "push_refused" | "push_expired" | "ended";
            connected: boolean;
            current_version: number;
            device: string;
            /** Format: date-time */
            due_at: string | null;
            id: string;
            /** @enum {string|null} */
            outcome: "kept" | "written" | "acked" | "offline" | "inactive" | "slow" | "expired" | "collapsed" | "cancelled" | "evicted" | "unknown" | "push_not_configured" | "pushed" | "push_refused" | "push_token_gone" | "push_token_suspect" | "no_push_token" | "push_not_needed" | "push_expired" | "opened" | "held_out" | "muted" | "channel_off" | "quiet" | "capped" | "push_muted" | "push_channel_off" | "push_capped" | null;
            reason: string | null;
            /** Format: date-time */
            sent_at: string | null;
            started_version: number | null;
            /** @enum {string} */
            state: "not_invited" | "invited" | "started" | "joined" | "android" | "live_only" | "other_user";
            summary: string;
            /** @enum {string} */
            targeted_by: "device" | "user" | "subscription" | "condition" | "everyone" | "joined" | "none" | "unknown";
            targeting: string;
            version: number;
            waiting: boolean;
        };
        ActivityEnd: {
            alert?: components["schemas"]["ActivityAlert"] | null;
            android?: components["schemas"]["ActivityAndroid"] | null;
            content_state?: Record<string, never> | null;
            /** Format: date-time */
            dismissal_date?: string | null;
            relevance?: number | null;
        };
        ActivityUpdate: {
            alert?: components["schemas"]["ActivityAlert"] | null;
            android?: components["schemas"]["ActivityAndroid"] | null;
            content_state?: Record<string, never> | null;
            relevance?: number | null;
            /** Format: date-time */
            stale_date?: string | null;
            /**
             * @default normal
             * @enum {string|null}
             */
            urgency?: "normal" | "high" | null;
        };
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
        AppleChannels: {
            channels: {
                apns_id: string;
                name: string | null;
            }[];
        };
        Audience: {
            condition?: string | null;
            devices?: components["schemas"]["DeviceFilter"] | null;
            /** @enum {boolean|null} */
            everyone?: true | null;
            topic?: string | null;
            /** @enum {boolean|null} */
            upload?: true | null;
        };
        Broadcast: {
            alert?: {
                body?: string | null;
                sound?: string | null;
                title?: string | null;
            } | null;
            content_state?: Record<string, never> | null;
            /** Format: date-time */
            dismiss_at?: string | null;
            /** @enum {string} */
            event: "update" | "end";
            /**
             * @default 10
             * @enum {integer|null}
             */
            priority?: 1 | 5 | 10 | null;
            relevance?: number | null;
            /** @default false */
            replaceable?: boolean | null;
            /** Format: date-time */
            stale_at?: string | null;
            /** Format: date-time */
            timestamp?: string | null;
        };
        BroadcastState: {
            /** Format: date-time */
            accepted_at: string;
            attempts: number;
            channel: string;
            /** Format: date-time */
            ended_at: string | null;
            /** Format: date-time */
            expires_at: string;
            /** Format: uuid */
            id: string;
            /** Format: uuid */
            notification: string | null;
            /** @enum {integer} */
            priority: 1 | 5 | 10;
            reason: string | null;
            replaceable: boolean;
            requests?: components["schemas"]["PushAttempt"][];
            /** @enum {string} */
            state: "waiting" | "sent" | "refused" | "expired" | "replaced" | "cancelled";
        };
        Campaign: {
            approval: {
                /** Format: date-time */
                at: string;
                by: string;
            } | null;
            audience: components["schemas"]["Audience"];
            authors: string[];
            complete: boolean;
            counts: {
                [key: string]: number;
            };
            /** Format: date-time */
            created_at: string;
            created_by: string | null;
            definition?: {
                [key: string]: unknown;
            };
            done: number;
            /** Format: date-time */
            edited_at: string | null;
            edited_by: string | null;
            errors: number;
            eta_s: number | null;
            experiment: components["schemas"]["CampaignReport"] | null;
            /** Format: date-time */
            finished_at: string | null;
            /** Format: uuid */
            id: string;
            /** @enum {string} */
            lane: "campaign" | "extra";
            latency: {
                p50_ms: number | null;
                p99_ms: number | null;
            };
            locales: string[];
            message: components["schemas"]["CampaignMessage"];
            name: string | null;
            /** Format: uuid */
            notification: string;
            problems?: components["schemas"]["CampaignProblem"][];
            queued: number;
            rate_per_second: number;
            reasons: {
                count: number;
                /** @enum {string} */
                outcome: "kept" | "written" | "acked" | "offline" | "inactive" | "slow" | "expired" | "collapsed" | "cancelled" | "evicted" | "unknown" | "push_not_configured" | "pushed" | "push_refused" | "push_token_gone" | "push_token_suspect" | "no_push_token" | "push_not_needed" | "push_expired" | "opened" | "held_out" | "muted" | "channel_off" | "quiet" | "capped" | "push_muted" | "push_channel_off" | "push_capped";
                reason: string | null;
            }[];
            recipients: number;
            revision: number;
            schedule: {
                batch_size: number;
                local_time: string | null;
                quiet_hours: {
                    from: string;
                    to: string;
                } | null;
                rate_per_second: number | null;
            };
            /** Format: date-time */
            start_at: string | null;
            /** Format: date-time */
            started_at: string | null;
            /** @enum {string} */
            state: "draft" | "scheduled" | "running" | "paused" | "done" | "aborted";
            steps?: {
                batches: number;
                /** Format: date-time */
                due_at: string;
            }[];
            total: number | null;
            uploaded: number;
            warnings?: components["schemas"]["Warning"][];
        };
        CampaignChange: {
            audience?: {
                [key: string]: unknown;
            } | null;
            batch_size?: number | null;
            experiment?: {
                [key: string]: unknown;
            } | null;
            lane?: string | null;
            local_time?: string | null;
            locales?: {
                [key: string]: unknown;
            } | null;
            message?: {
                [key: string]: unknown;
            } | null;
            name?: string | null;
            quiet_hours?: {
                [key: string]: unknown;
            } | null;
            rate_per_second?: number | null;
            revision: number;
            start_at?: string | null;
            variables?: {
                [key: string]: unknown;
            } | null;
        };
        CampaignCount: {
            by_service: {
                [key: string]: number;
            };
            devices: number;
            filtered: number;
            no_push_token: number;
            suspect: number;
            users: number | null;
            warnings?: components["schemas"]["Warning"][];
        };
        CampaignEstimate: {
            approval_above: number | null;
            by_locale: {
                devices: components["schemas"]["EstimatedSize"];
                locale: string | null;
            }[];
            by_service: {
                [key: string]: components["schemas"]["EstimatedSize"];
            };
            devices: components["schemas"]["EstimatedSize"];
            exact: boolean;
            examined: number;
            forecast: {
                /** Format: date-time */
                ends_at: string | null;
                measured_campaigns: number;
                /** @enum {string} */
                rate_from: "limit" | "measured" | "unknown";
                rate_per_second: number | null;
                /** Format: date-time */
                starts_at: string;
                steps: {
                    devices: number;
                    /** Format: date-time */
                    due_at: string;
                }[];
            };
            needs_approval: boolean;
            no_push_token: components["schemas"]["EstimatedSize"];
            other_locales: components["schemas"]["EstimatedSize"];
            revision: number;
            sample: {
                device: string;
                locale: string | null;
                platform: string | null;
                service: ("apns" | "fcm" | "webpush" | "webhook" | "hms" | "wns") | null;
                timezone: string | null;
                user: string | null;
            }[];
            suspect: components["schemas"]["EstimatedSize"];
            users: components["schemas"]["EstimatedSize"];
        };
        CampaignExperiment: {
            control?: string | null;
            name: string;
            variants?: {
                [key: string]: components["schemas"]["CampaignTreatment"];
            } | null;
        };
        CampaignMessage: {
            category?: string | null;
            collapse_key?: string | null;
            data?: unknown;
            notification?: components["schemas"]["Shown"] | null;
            push?: components["schemas"]["Push"] | null;
            ttl?: components["schemas"]["Duration"] | null;
            /**
             * @default normal
             * @enum {string|null}
             */
            urgency?: "very-low" | "low" | "normal" | "high" | null;
            /** @enum {string|null} */
            when?: "active" | "connected" | "stored" | null;
        };
        CampaignProblem: {
            code: string;
            detail: string;
            field: string | null;
        };
        CampaignRecipient: {
            data?: unknown;
            notification?: {
                [key: string]: unknown;
            };
            user: string;
            variables?: {
                [key: string]: string;
            };
        };
        CampaignReport: {
            control: string;
            name: string;
            variants: components["schemas"]["CampaignVariantReport"][];
        };
        Campaigns: {
            campaigns: components["schemas"]["Campaign"][];
            next: string | null;
        };
        CampaignTreatment: {
            data?: unknown;
            hold_out?: boolean | null;
            locales?: {
                [key: string]: components["schemas"]["CampaignVariant"];
            } | null;
            notification?: components["schemas"]["Shown"] | null;
        };
        CampaignVariant: {
            data?: unknown;
            notification?: components["schemas"]["Shown"] | null;
        };
        CampaignVariantReport: {
            acked: number;
            against_control: {
                delivered: {
                    difference: number;
                    distinguishable: boolean;
                    high: number;
                    low: number;
                    p_value: number;
                } | null;
                opened: {
                    difference: number;
                    distinguishable: boolean;
                    high: number;
                    low: number;
                    p_value: number;
                } | null;
            } | null;
            delivered: {
                count: number;
                high: number | null;
                low: number | null;
                rate: number | null;
            };
            held_out: boolean;
            name: string;
            /** Format: uuid */
            notification: string;
            opened: {
                count: number;
                high: number | null;
                low: number | null;
                rate: number | null;
            };
            pushed: number;
            targeted: number;
            written: number;
        };
        Cancelled: {
            /** Format: uuid */
            id: string;
            removed: number;
        };
        CategoryPreference: {
            channels?: ("live" | "push" | "inbox")[] | null;
            daily_max?: number | null;
            muted?: boolean | null;
        };
        Channel: {
            apns_id: string | null;
            broadcasts?: components["schemas"]["BroadcastState"][];
            bundle_id: string;
            /** Format: date-time */
            created_at: string;
            /** @enum {string} */
            environment: "production" | "sandbox";
            name: string;
            /** @enum {string} */
            storage: "none" | "latest";
            topic: string | null;
            waiting: number;
        };
        ChannelChange: {
            topic: string | null;
        };
        Channels: {
            channels: components["schemas"]["Channel"][];
            next: string | null;
        };
        Device: {
            app_version: string | null;
            /** Format: date-time */
            created_at: string;
            device: string;
            endpoints?: number;
            /** Format: date */
            last_seen?: string | null;
            locale: string | null;
            platform: components["schemas"]["Platform"] | null;
            presence: components["schemas"]["Presence"];
            push_suspect: {
                /** Format: date-time */
                at: string;
                reason: string;
            } | null;
            push_token: components["schemas"]["PushToken"] | null;
            push_tokens: components["schemas"]["DevicePushToken"][];
            tags: {
                [key: string]: string;
            };
            timezone: string | null;
            topics: string[];
            user: string | null;
        };
        DeviceChange: {
            app_version?: string | null;
            locale?: string | null;
            platform?: components["schemas"]["Platform"] | null;
            push_token?: components["schemas"]["PushToken"] | null;
            tags?: {
                [key: string]: string | null;
            } | null;
            timezone?: string | null;
            user?: string | null;
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
        DeviceLine: {
            device: string;
            token: string;
        } | {
            error: components["schemas"]["Problem"];
        };
        DevicePushToken: {
            /** @enum {string} */
            environment: "production" | "sandbox";
            /** Format: date-time */
            expires_at: string | null;
            /** @enum {string} */
            kind: "alert" | "webpush" | "fcm" | "voip" | "complication" | "fileprovider" | "widgets" | "controls" | "live-activity-start" | "live-activity" | "webhook" | "hms" | "wns";
            main: boolean;
            name: string;
            /** Format: date-time */
            registered_at: string;
            /** @enum {string} */
            service: "apns" | "fcm" | "webpush" | "webhook" | "hms" | "wns";
            suspect: {
                /** Format: date-time */
                at: string;
                reason: string;
            } | null;
            token?: components["schemas"]["PushToken"];
            topic: string | null;
        };
        DevicePushTokens: {
            push_tokens: components["schemas"]["DevicePushToken"][];
        };
        DeviceRegistration: {
            app_version?: string | null;
            device?: string | null;
            locale?: string | null;
            platform?: components["schemas"]["Platform"] | null;
            push_token?: components["schemas"]["PushToken"] | null;
            push_tokens?: components["schemas"]["NamedPushToken"][] | null;
            tags?: {
                [key: string]: string;
            } | null;
            timezone?: string | null;
            topics?: string[] | null;
            user?: string | null;
        };
        Devices: {
            devices: components["schemas"]["Device"][];
            next: string | null;
        };
        Discovery: {
            unifiedpush: {
                /** @constant */
                version: 1;
            };
        };
        Duration: string | number;
        Endpoint: {
            /** Format: date-time */
            created_at: string;
            /** Format: date-time */
            expires_at: string | null;
            id: string;
            /** @enum {unknown} */
            idle_urgency: "very-low" | "low" | "normal" | "high";
            label: string | null;
            /** Format: uri */
            url?: string;
            vapid_key: string | null;
        };
        Endpoints: {
            endpoints: components["schemas"]["Endpoint"][];
        };
        EstimatedSize: {
            high: number;
            low: number;
            value: number;
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
        Exposed: {
            exposed: {
                [key: string]: string;
            };
        };
        Exposures: {
            experiments: string[];
        };
        Inbox: {
            messages: components["schemas"]["Message"][];
            total: number;
        };
        Invalidation: {
            /** Format: date-time */
            at: string;
            device: string;
            /** @enum {string} */
            environment: "production" | "sandbox";
            /** @enum {string} */
            kind: "alert" | "webpush" | "fcm" | "voip" | "complication" | "fileprovider" | "widgets" | "controls" | "live-activity-start" | "live-activity" | "webhook" | "hms" | "wns";
            name: string;
            reason: string;
            removed: boolean;
            seq: string;
            /** @enum {string} */
            service: "apns" | "fcm" | "webpush" | "webhook" | "hms" | "wns";
        };
        Invalidations: {
            invalidations: components["schemas"]["Invalidation"][];
            next: string | null;
        };
        Item: {
            category?: string;
            /** Format: date-time */
            changed_at: string;
            /** Format: date-time */
            created_at: string;
            data?: unknown;
            /** Format: date-time */
            expires_at: string;
            /** Format: uuid */
            id: string;
            notification?: components["schemas"]["Shown"];
            /** @enum {string} */
            state: "unread" | "read" | "archived";
        };
        ItemChange: {
            /** @enum {string} */
            action: "read" | "unread" | "archive" | "unarchive";
            category?: string | null;
            ids?: string[] | null;
            /** Format: uuid */
            up_to?: string | null;
        };
        ItemCounts: {
            categories: {
                [key: string]: number;
            };
            unread: number;
        };
        Items: {
            items: components["schemas"]["Item"][];
            next: string | null;
        };
        ItemsChanged: {
            categories: {
                [key: string]: number;
            };
            changed: number;
            unread: number;
        };
        ItemsDeleted: {
            deleted: number;
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
        ListedNotification: {
            campaign: string | null;
            category: string | null;
            counts: {
                [key: string]: number;
            } | null;
            /** Format: date-time */
            expires_at: string;
            /** Format: uuid */
            id: string;
            recipients?: components["schemas"]["NotificationRecipient"][];
            /** Format: date-time */
            sent_at: string;
            /** @enum {string|null} */
            state: "pending" | "done" | "cancelled" | "expired" | null;
            target: {
                condition?: string;
                /** @enum {string} */
                kind: "users" | "devices" | "topic" | "condition" | "everyone" | "campaign";
                topic?: string;
            };
            targets: number | null;
            text: string | null;
            title: string | null;
            /** @enum {string} */
            urgency: "very-low" | "low" | "normal" | "high";
            /** @enum {string} */
            when: "active" | "connected" | "stored";
        };
        Me: {
            app_version: string | null;
            connect: {
                mqtt: string;
                mqtt_tcp?: string;
                socketio: string;
                sse: string;
                websocket: string;
                xmpp: string;
                xmpp_tcp?: string;
            };
            /** Format: date-time */
            created_at: string;
            device: string;
            experiments: {
                [key: string]: {
                    data?: unknown;
                    variant: string;
                };
            };
            inbox: number;
            locale: string | null;
            maintenance: {
                data?: unknown;
                /** Format: date-time */
                ends_at: string;
                name: string;
                notification?: Record<string, never>;
                /** Format: date-time */
                starts_at: string;
                /** @enum {string} */
                state: "announced" | "active";
            }[];
            messages: components["schemas"]["Message"][];
            platform: components["schemas"]["Platform"] | null;
            preferences: components["schemas"]["OwnPreferences"];
            presence: components["schemas"]["Presence"];
            push_suspect: {
                /** Format: date-time */
                at: string;
                reason: string;
            } | null;
            push_token: components["schemas"]["PushToken"] | null;
            push_tokens: components["schemas"]["DevicePushToken"][];
            tags: {
                [key: string]: string;
            };
            timezone: string | null;
            topics: string[];
            unread_items: number;
            user: string | null;
        };
        Message: {
            /** @constant */
            ack?: true;
            data?: unknown;
            epoch?: string;
            /** Format: uuid */
            id: string;
            notification?: Record<string, never>;
            offset?: number;
            /** Format: date-time */
            sent_at: string;
            /** @constant */
            t: "msg";
            topic?: string;
        };
        NamedPushToken: {
            channel?: string | null;
            endpoint?: string | null;
            /** @enum {string|null} */
            environment?: "production" | "sandbox" | null;
            /** Format: date-time */
            expires_at?: string | null;
            keys?: {
                auth: string;
                p256dh: string;
            } | null;
            /** @enum {string|null} */
            kind?: "alert" | "webpush" | "fcm" | "voip" | "complication" | "fileprovider" | "widgets" | "controls" | "live-activity-start" | "live-activity" | "webhook" | "hms" | "wns" | null;
            name?: string | null;
            only_if_missing?: boolean | null;
            provider?: string | null;
            /** @enum {string|null} */
            service?: "apns" | "fcm" | "webpush" | "webhook" | "hms" | "wns" | null;
            token?: string | null;
            topic?: string | null;
        };
        NewActivity: {
            alert: components["schemas"]["ActivityAlert"];
            android?: components["schemas"]["ActivityAndroid"] | null;
            attributes?: Record<string, never> | null;
            attributes_type: string;
            content_state: Record<string, never>;
            /** @default false */
            frequent_updates?: boolean | null;
            id?: string | null;
            /** @enum {string|null} */
            ios_via?: "apns" | "fcm" | null;
            /**
             * @default invited
             * @enum {string|null}
             */
            join?: "invited" | "anyone" | null;
            relevance?: number | null;
            /** Format: date-time */
            stale_date?: string | null;
            to: components["schemas"]["To"];
            ttl?: components["schemas"]["Duration"] | null;
            /**
             * @default connected
             * @enum {string|null}
             */
            when?: "active" | "connected" | "stored" | null;
        };
        NewBroadcast: {
            alert?: {
                body?: string | null;
                sound?: string | null;
                title?: string | null;
            } | null;
            content_state?: Record<string, never> | null;
            /** Format: date-time */
            dismiss_at?: string | null;
            /** @enum {string} */
            event: "update" | "end";
            /**
             * @default 10
             * @enum {integer|null}
             */
            priority?: 1 | 5 | 10 | null;
            relevance?: number | null;
            /** @default false */
            replaceable?: boolean | null;
            /** Format: date-time */
            stale_at?: string | null;
            /** Format: date-time */
            timestamp?: string | null;
            ttl?: components["schemas"]["Duration"] | null;
        };
        NewCampaign: {
            audience: components["schemas"]["Audience"];
            /** @default 500 */
            batch_size?: number | null;
            experiment?: components["schemas"]["CampaignExperiment"] | null;
            /**
             * @default campaign
             * @enum {string|null}
             */
            lane?: "campaign" | "extra" | null;
            local_time?: string | null;
            locales?: {
                [key: string]: components["schemas"]["CampaignVariant"];
            } | null;
            message: components["schemas"]["CampaignMessage"];
            name?: string | null;
            quiet_hours?: {
                from: string;
                to: string;
            } | null;
            rate_per_second?: number | null;
            start?: boolean | null;
            /** Format: date-time */
            start_at?: string | null;
            variables?: {
                [key: string]: string;
            } | null;
        };
        NewChannel: {
            apns_id?: string | null;
            /**
             * @default production
             * @enum {string|null}
             */
            environment?: "production" | "sandbox" | null;
            name: string;
            /**
             * @default none
             * @enum {string|null}
             */
            storage?: "none" | "latest" | null;
            topic?: string | null;
        };
        NewEndpoint: {
            expires_in?: string | number | null;
            /** @enum {string|null} */
            idle_urgency?: "very-low" | "low" | "normal" | "high" | null;
            label?: string | null;
            vapid_key?: string | null;
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
        NewItem: {
            category?: string | null;
            retention?: components["schemas"]["Duration"] | null;
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
        NewPushToken: {
            channel?: string | null;
            endpoint?: string | null;
            /** @enum {string|null} */
            environment?: "production" | "sandbox" | null;
            /** Format: date-time */
            expires_at?: string | null;
            keys?: {
                auth: string;
                p256dh: string;
            } | null;
            only_if_missing?: boolean | null;
            provider?: string | null;
            /** @enum {string|null} */
            service?: "apns" | "fcm" | "webpush" | "webhook" | "hms" | "wns" | null;
            token?: string | null;
            topic?: string | null;
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
        Notification: {
            category?: string | null;
            collapse_key?: string | null;
            data?: unknown;
            item?: components["schemas"]["NewItem"] | null;
            notification?: components["schemas"]["Shown"] | null;
            push?: components["schemas"]["Push"] | null;
            /** @default false */
            retain?: boolean | null;
            to: components["schemas"]["To"];
            ttl?: components["schemas"]["Duration"] | null;
            /**
             * @default normal
             * @enum {string|null}
             */
            urgency?: "very-low" | "low" | "normal" | "high" | null;
            /**
             * @default stored
             * @enum {string|null}
             */
            when?: "active" | "connected" | "stored" | null;
        };
        NotificationRecipient: {
            /** Format: date-time */
            at: string | null;
            device: string;
            in_inbox: boolean;
            /** @enum {string|null} */
            outcome: "kept" | "written" | "acked" | "offline" | "inactive" | "slow" | "expired" | "collapsed" | "cancelled" | "evicted" | "unknown" | "push_not_configured" | "pushed" | "push_refused" | "push_token_gone" | "push_token_suspect" | "no_push_token" | "push_not_needed" | "push_expired" | "opened" | "held_out" | "muted" | "channel_off" | "quiet" | "capped" | "push_muted" | "push_channel_off" | "push_capped" | null;
            reason?: string;
        };
        Notifications: {
            next: string | null;
            notifications: components["schemas"]["ListedNotification"][];
            /** Format: date-time */
            searched_to?: string;
        };
        NotificationState: {
            broadcasts?: components["schemas"]["BroadcastState"][];
            category: string | null;
            collapse_key: string | null;
            counts: {
                [key: string]: number;
            };
            essential?: boolean;
            /** Format: date-time */
            expires_at: string;
            /** Format: uuid */
            id: string;
            retain: boolean;
            /** Format: date-time */
            sent_at: string;
            /** @enum {string} */
            state: "pending" | "done" | "cancelled" | "expired";
            target: {
                condition?: string;
                /** @enum {string} */
                kind: "users" | "devices" | "topic" | "condition" | "everyone" | "campaign";
                topic?: string;
            };
            targets: number | null;
            trace?: string;
            /** @enum {string} */
            urgency: "very-low" | "low" | "normal" | "high";
            /** @enum {string} */
            when: "active" | "connected" | "stored";
        };
        Opened: {
            opened: number;
        };
        Opening: {
            ids: string[];
        };
        OwnPreferences: {
            device: components["schemas"]["Preferences"] | null;
            user: components["schemas"]["Preferences"] | null;
        };
        /** @enum {string} */
        Platform: "ios" | "android" | "web" | "console" | "other";
        Preferences: {
            categories?: {
                [key: string]: components["schemas"]["CategoryPreference"];
            } | null;
            channels?: ("live" | "push" | "inbox")[] | null;
            muted_topics?: string[] | null;
            quiet_hours?: components["schemas"]["QuietHours"] | null;
        };
        /** @enum {string} */
        Presence: "active" | "idle" | "offline";
        PresenceAnswer: {
            users: {
                [key: string]: {
                    devices: {
                        device: string;
                        presence: components["schemas"]["Presence"];
                    }[];
                    presence: components["schemas"]["Presence"];
                };
            };
        };
        PresenceChange: {
            /** @enum {string} */
            state: "active" | "idle";
        };
        PresenceQuery: {
            users: string[];
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
            code: "invalid_json" | "corrupt_encoding" | "invalid_field" | "unknown_field" | "invalid_parameter" | "too_many_targets" | "unauthorized" | "forbidden" | "csrf" | "confirm_log_in" | "not_found" | "method_not_allowed" | "body_timeout" | "idempotency_conflict" | "already_exists" | "endpoint_gone" | "not_connected" | "misdirected" | "not_at_a_front" | "wrong_state" | "revision_conflict" | "campaign_incomplete" | "approval_required" | "own_approval" | "credential_test_failed" | "push_key_missing" | "limit_exceeded" | "body_too_large" | "data_too_large" | "push_payload_too_large" | "too_many_lines" | "unsupported_media_type" | "unsupported_encoding" | "too_many_requests" | "quota_exceeded" | "internal" | "not_built" | "push_service_rejected" | "push_service_failed" | "overloaded" | "unavailable" | "cell_unavailable" | "disk_full" | "bad_handshake" | "bad_last_event_id" | "bad_topic" | "malformed_request" | "too_many_topics" | "expired" | "revoked" | "request_timeout" | "replaced" | "upgrade_required" | "websocket_version" | "head_too_large";
            detail: string;
            field?: string;
            status: number;
            title: string;
            /** Format: uri-reference */
            type: string;
        };
        Push: {
            after?: components["schemas"]["Duration"] | null;
            apns?: Record<string, never> | null;
            broadcast?: components["schemas"]["Broadcast"] | null;
            fcm?: Record<string, never> | null;
            hms?: Record<string, never> | null;
            /**
             * @default never
             * @enum {string|null}
             */
            mode?: "never" | "fallback" | "always" | null;
            token?: string | null;
            webhook?: Record<string, never> | null;
            webpush?: Record<string, never> | null;
            wns?: Record<string, never> | null;
        };
        PushAttempt: {
            body: unknown;
            headers: {
                [key: string]: string;
            };
            reason?: string;
            response?: {
                body?: unknown;
                status: number;
            };
            /** Format: date-time */
            sent_at: string;
            took_ms: number;
            url: string;
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
        };
        PushCredentials: {
            credentials: components["schemas"]["PushCredential"][];
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
        QuietHours: {
            from: string;
            timezone?: string | null;
            to: string;
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
        Quotas: {
            app: string;
            quotas: components["schemas"]["Quota"][];
        };
        Receipt: {
            /** Format: uuid */
            id: string;
            targets: number | null;
            warnings?: components["schemas"]["Warning"][];
        };
        ReceiptLine: components["schemas"]["Receipt"] | {
            error: components["schemas"]["Problem"];
        };
        Recipient: {
            data?: unknown;
            notification?: components["schemas"]["Shown"] | null;
            user: string;
            variables?: {
                [key: string]: string;
            } | null;
        };
        Registered: {
            connect: {
                mqtt: string;
                mqtt_tcp?: string;
                socketio: string;
                sse: string;
                websocket: string;
                xmpp: string;
                xmpp_tcp?: string;
            };
            device: string;
            /** Format: date-time */
            expires_at: string;
            token: string;
        };
        Relayed: {
            expires_at_ms: number;
            key: string;
            notification: components["schemas"]["Notification"];
            traceparent?: string | null;
        };
        RestoredTokens: {
            restored: number;
        };
        RestoreTokens: {
            reason?: string | null;
            /** Format: date-time */
            since?: string | null;
        };
        Revoked: {
            device: string;
            token_version: number;
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
        Shown: {
            actions?: components["schemas"]["Action"][] | null;
            android_channel?: string | null;
            android_click_action?: string | null;
            android_color?: string | null;
            android_icon?: string | null;
            badge?: number | "unread" | null;
            body?: string | null;
            category?: string | null;
            content_available?: boolean | null;
            /** @enum {string|null} */
            dir?: "auto" | "ltr" | "rtl" | null;
            fcm_analytics_label?: string | null;
            /** Format: uri */
            icon?: string | null;
            /** Format: uri */
            image?: string | null;
            lang?: string | null;
            /** @enum {string|null} */
            level?: "passive" | "active" | "time-sensitive" | "critical" | null;
            mutable?: boolean | null;
            relevance?: number | null;
            sound?: string | components["schemas"]["Sound"] | null;
            thread?: string | null;
            title?: string | null;
            /** Format: uri */
            url?: string | null;
        };
        Sound: {
            /** @default false */
            critical?: boolean | null;
            /** @default default */
            name?: string | null;
            volume?: number | null;
        };
        To: {
            users: string[];
        } | {
            devices: string[];
        } | {
            topic: string;
        } | {
            condition: string;
        } | {
            /** @constant */
            everyone: true;
        };
        Topic: {
            connected: number;
            epoch: string | null;
            log: number;
            offset: number;
            retained: boolean;
            subscribers: number;
            topic: string;
        };
        TopicPermission: {
            /** @enum {string} */
            action: "subscribe" | "publish";
            /** @enum {string} */
            decision: "allowed" | "denied" | "ask";
            detail: string;
            device: string;
            reason: string | null;
            rule: null | {
                allow: string;
                number: number;
                topic: string;
            };
            topic: string;
            user: string | null;
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
        Topics: {
            next: string | null;
            topics: components["schemas"]["Topic"][];
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
        Trace: {
            attempts?: components["schemas"]["PushAttempt"][];
            connected: boolean;
            device: string;
            /** Format: uuid */
            id: string;
            in_inbox: boolean;
            /** Format: date-time */
            push_due_at?: string;
            /** Format: date-time */
            push_taken_at?: string;
            /** @enum {string} */
            reason?: "not_targeted" | "registered_later" | "user_changed_later" | "subscribed_later" | "not_reached" | "not_recorded" | "offline" | "inactive" | "slow" | "pending" | "unacknowledged" | "expired" | "collapsed" | "evicted" | "cancelled" | "held_out" | "push_pending" | "quota" | "no_token" | "invalid_token" | "suspended_token" | "push_not_configured" | "push_refused" | "push_expired" | "muted" | "channel_off" | "quiet" | "capped" | "push_muted" | "push_channel_off" | "push_capped";
            steps: {
                /** Format: date-time */
                at: string;
                explain: string;
                /** @enum {string} */
                outcome: "kept" | "written" | "acked" | "offline" | "inactive" | "slow" | "expired" | "collapsed" | "cancelled" | "evicted" | "unknown" | "push_not_configured" | "pushed" | "push_refused" | "push_token_gone" | "push_token_suspect" | "no_push_token" | "push_not_needed" | "push_expired" | "opened" | "held_out" | "muted" | "channel_off" | "quiet" | "capped" | "push_muted" | "push_channel_off" | "push_capped";
                reason?: string;
            }[];
            subscribed: boolean;
            summary: string;
            /** @enum {string} */
            targeted_by: "device" | "user" | "subscription" | "session" | "condition" | "everyone" | "campaign" | "upload" | "none" | "unknown";
            targeting: string;
            trace?: string;
        };
        UserRevoked: {
            devices: number;
            user: string;
        };
        Warning: {
            field: string;
            /** @enum {string} */
            service: "apns" | "fcm" | "webpush" | "webhook" | "hms" | "wns";
            warning: string;
        };
    };
    responses: {
        BadGateway: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/problem+json": components["schemas"]["Problem"];
            };
        };
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
        Gone: {
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
    root: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            307: {
                headers: {
                    Location?: string;
                    [name: string]: unknown;
                };
                content?: never;
            };
        };
    };
    docs: {
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
                    "text/html": string;
                };
            };
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
    discoverEndpoint: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                token: string;
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
                     *       "unifiedpush": {
                     *         "version": 1
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["Discovery"];
                };
            };
            400: components["responses"]["BadRequest"];
            404: components["responses"]["NotFound"];
            410: components["responses"]["Gone"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    postToEndpoint: {
        parameters: {
            query?: never;
            header: {
                "Content-Encoding"?: string;
                "Crypto-Key"?: string;
                Encryption?: string;
                Prefer?: string;
                Topic?: string;
                TTL: string;
                Urgency?: "very-low" | "low" | "normal" | "high";
            };
            path: {
                token: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/octet-stream": string;
            };
        };
        responses: {
            201: {
                headers: {
                    Location?: string;
                    TTL?: number;
                    [name: string]: unknown;
                };
                content?: never;
            };
            202: {
                headers: {
                    Link?: string;
                    Location?: string;
                    "Preference-Applied"?: string;
                    TTL?: number;
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["BodyTimeout"];
            410: components["responses"]["Gone"];
            413: components["responses"]["TooLarge"];
            429: components["responses"]["TooManyRequests"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    cancelMessage: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                token: string;
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
            404: components["responses"]["NotFound"];
            429: components["responses"]["TooManyRequests"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    receipt: {
        parameters: {
            query?: never;
            header?: {
                Prefer?: string;
            };
            path: {
                token: string;
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            202: {
                headers: {
                    "Retry-After"?: number;
                    [name: string]: unknown;
                };
                content?: never;
            };
            204: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: components["responses"]["BadRequest"];
            404: components["responses"]["NotFound"];
            410: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            429: components["responses"]["TooManyRequests"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    activities: {
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
                     *       "activities": [
                     *         {
                     *           "id": "match-7",
                     *           "state": "active",
                     *           "version": 4,
                     *           "attributes_type": "MatchAttributes",
                     *           "attributes": {
                     *             "home": "Kyoto",
                     *             "away": "Nara"
                     *           },
                     *           "content_state": {
                     *             "score": "2:1",
                     *             "minute": 63
                     *           },
                     *           "stale_date": "2026-01-15T10:05:00.000Z",
                     *           "relevance": 1,
                     *           "android": {
                     *             "text": "2:1",
                     *             "progress": {
                     *               "value": 63,
                     *               "max": 90
                     *             }
                     *           },
                     *           "when": "connected",
                     *           "ios_via": null,
                     *           "frequent_updates": false,
                     *           "join": "invited",
                     *           "created_at": "2026-01-15T09:00:00.000Z",
                     *           "updated_at": "2026-01-15T10:03:00.000Z",
                     *           "expires_at": "2026-01-15T21:00:00.000Z",
                     *           "ended_at": null,
                     *           "dismissal_date": null,
                     *           "devices": 1200,
                     *           "high_priority_left": 9
                     *         }
                     *       ],
                     *       "next": null
                     *     }
                     */
                    "application/json": components["schemas"]["Activities"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    startActivity: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewActivity"];
            };
        };
        responses: {
            201: {
                headers: {
                    "Idempotent-Replayed"?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "id": "match-7",
                     *       "state": "active",
                     *       "version": 1,
                     *       "attributes_type": "MatchAttributes",
                     *       "attributes": {
                     *         "home": "Kyoto",
                     *         "away": "Nara"
                     *       },
                     *       "content_state": {
                     *         "score": "2:1",
                     *         "minute": 63
                     *       },
                     *       "stale_date": "2026-01-15T10:05:00.000Z",
                     *       "relevance": 1,
                     *       "android": {
                     *         "text": "2:1",
                     *         "progress": {
                     *           "value": 63,
                     *           "max": 90
                     *         }
                     *       },
                     *       "when": "connected",
                     *       "ios_via": null,
                     *       "frequent_updates": false,
                     *       "join": "invited",
                     *       "created_at": "2026-01-15T09:00:00.000Z",
                     *       "updated_at": "2026-01-15T10:03:00.000Z",
                     *       "expires_at": "2026-01-15T21:00:00.000Z",
                     *       "ended_at": null,
                     *       "dismissal_date": null,
                     *       "devices": 1200,
                     *       "high_priority_left": 9,
                     *       "target": {
                     *         "kind": "topic",
                     *         "topic": "match-7"
                     *       },
                     *       "change": {
                     *         "priority": 10,
                     *         "notification": "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c10"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["Activity"];
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
    activity: {
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
                     *       "id": "match-7",
                     *       "state": "active",
                     *       "version": 4,
                     *       "attributes_type": "MatchAttributes",
                     *       "attributes": {
                     *         "home": "Kyoto",
                     *         "away": "Nara"
                     *       },
                     *       "content_state": {
                     *         "score": "2:1",
                     *         "minute": 63
                     *       },
                     *       "stale_date": "2026-01-15T10:05:00.000Z",
                     *       "relevance": 1,
                     *       "android": {
                     *         "text": "2:1",
                     *         "progress": {
                     *           "value": 63,
                     *           "max": 90
                     *         }
                     *       },
                     *       "when": "connected",
                     *       "ios_via": null,
                     *       "frequent_updates": false,
                     *       "join": "invited",
                     *       "created_at": "2026-01-15T09:00:00.000Z",
                     *       "updated_at": "2026-01-15T10:03:00.000Z",
                     *       "expires_at": "2026-01-15T21:00:00.000Z",
                     *       "ended_at": null,
                     *       "dismissal_date": null,
                     *       "devices": 1200,
                     *       "high_priority_left": 9,
                     *       "target": {
                     *         "kind": "topic",
                     *         "topic": "match-7"
                     *       },
                     *       "progress": {
                     *         "collected": true,
                     *         "current": 1199,
                     *         "waiting": 1,
                     *         "counts": {
                     *           "pushed": 4796,
                     *           "push_token_gone": 1
                     *         },
                     *         "reasons": [
                     *           {
                     *             "outcome": "pushed",
                     *             "reason": null,
                     *             "count": 4796
                     *           },
                     *           {
                     *             "outcome": "push_token_gone",
                     *             "reason": "Unregistered",
                     *             "count": 1
                     *           }
                     *         ]
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["Activity"];
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
    endActivity: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
            };
            cookie?: never;
        };
        requestBody?: {
            content: {
                "application/json": components["schemas"]["ActivityEnd"];
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
                     *       "id": "match-7",
                     *       "state": "ended",
                     *       "version": 4,
                     *       "attributes_type": "MatchAttributes",
                     *       "attributes": {
                     *         "home": "Kyoto",
                     *         "away": "Nara"
                     *       },
                     *       "content_state": {
                     *         "score": "2:1",
                     *         "minute": 63
                     *       },
                     *       "stale_date": "2026-01-15T10:05:00.000Z",
                     *       "relevance": 1,
                     *       "android": {
                     *         "text": "2:1",
                     *         "progress": {
                     *           "value": 63,
                     *           "max": 90
                     *         }
                     *       },
                     *       "when": "connected",
                     *       "ios_via": null,
                     *       "frequent_updates": false,
                     *       "join": "invited",
                     *       "created_at": "2026-01-15T09:00:00.000Z",
                     *       "updated_at": "2026-01-15T10:03:00.000Z",
                     *       "expires_at": "2026-01-15T21:00:00.000Z",
                     *       "ended_at": "2026-01-15T10:55:00.000Z",
                     *       "dismissal_date": "2026-01-15T11:30:00.000Z",
                     *       "devices": 1200,
                     *       "high_priority_left": 9,
                     *       "change": {
                     *         "priority": 10,
                     *         "notification": "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c10"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["Activity"];
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
    updateActivity: {
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
                "application/json": components["schemas"]["ActivityUpdate"];
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
                     *       "id": "match-7",
                     *       "state": "active",
                     *       "version": 4,
                     *       "attributes_type": "MatchAttributes",
                     *       "attributes": {
                     *         "home": "Kyoto",
                     *         "away": "Nara"
                     *       },
                     *       "content_state": {
                     *         "score": "2:1",
                     *         "minute": 63
                     *       },
                     *       "stale_date": "2026-01-15T10:05:00.000Z",
                     *       "relevance": 1,
                     *       "android": {
                     *         "text": "2:1",
                     *         "progress": {
                     *           "value": 63,
                     *           "max": 90
                     *         }
                     *       },
                     *       "when": "connected",
                     *       "ios_via": null,
                     *       "frequent_updates": false,
                     *       "join": "invited",
                     *       "created_at": "2026-01-15T09:00:00.000Z",
                     *       "updated_at": "2026-01-15T10:03:00.000Z",
                     *       "expires_at": "2026-01-15T21:00:00.000Z",
                     *       "ended_at": null,
                     *       "dismissal_date": null,
                     *       "devices": 1200,
                     *       "high_priority_left": 9,
                     *       "change": {
                     *         "priority": 10,
                     *         "notification": "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c10"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["Activity"];
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
    activityDevice: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                device: string;
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
                     *       "id": "match-7",
                     *       "device": "d1",
                     *       "state": "joined",
                     *       "version": 4,
                     *       "current_version": 4,
                     *       "waiting": false,
                     *       "due_at": null,
                     *       "sent_at": "2026-01-15T10:03:00.120Z",
                     *       "started_version": 1,
                     *       "outcome": "pushed",
                     *       "reason": null,
                     *       "at": "2026-01-15T09:00:00.300Z",
                     *       "connected": false,
                     *       "targeted_by": "subscription",
                     *       "targeting": "The device subscribes durably to the topic \"match-7\"."
                     *     }
                     */
                    "application/json": components["schemas"]["ActivityDevice"];
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
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
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
            403: components["responses"]["Forbidden"];
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
            403: components["responses"]["Forbidden"];
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
            403: components["responses"]["Forbidden"];
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
            403: components["responses"]["Forbidden"];
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
            403: components["responses"]["Forbidden"];
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
            403: components["responses"]["Forbidden"];
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
            403: components["responses"]["Forbidden"];
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
            403: components["responses"]["Forbidden"];
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
            403: components["responses"]["Forbidden"];
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
            403: components["responses"]["Forbidden"];
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
                     *           "created_at": "2026-01-15T09:30:00.000Z"
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["PushCredentials"];
                };
            };
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
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
            403: components["responses"]["Forbidden"];
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
            403: components["responses"]["Forbidden"];
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
            403: components["responses"]["Forbidden"];
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
            403: components["responses"]["Forbidden"];
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
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
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
            403: components["responses"]["Forbidden"];
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
            403: components["responses"]["Forbidden"];
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
            403: components["responses"]["Forbidden"];
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
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    campaigns: {
        parameters: {
            query?: {
                after?: string;
                created_by?: string;
                created_since?: string;
                created_until?: string;
                limit?: number;
                name?: string;
                start_since?: string;
                start_until?: string;
                state?: string;
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
                     *       "campaigns": [
                     *         {
                     *           "id": "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c20",
                     *           "name": "Spring",
                     *           "state": "running",
                     *           "audience": {
                     *             "topic": "news",
                     *             "devices": {
                     *               "platforms": [
                     *                 "ios"
                     *               ]
                     *             }
                     *           },
                     *           "message": {
                     *             "notification": {
                     *               "title": "Hello"
                     *             },
                     *             "urgency": "normal",
                     *             "ttl": "2h",
                     *             "push": {
                     *               "mode": "always"
                     *             }
                     *           },
                     *           "locales": [
                     *             "ja"
                     *           ],
                     *           "experiment": null,
                     *           "lane": "campaign",
                     *           "schedule": {
                     *             "local_time": null,
                     *             "quiet_hours": null,
                     *             "rate_per_second": 4000,
                     *             "batch_size": 500
                     *           },
                     *           "notification": "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c21",
                     *           "created_at": "2026-01-15T09:30:00.000Z",
                     *           "start_at": null,
                     *           "started_at": "2026-01-15T09:30:00.100Z",
                     *           "finished_at": null,
                     *           "uploaded": 0,
                     *           "recipients": 500000,
                     *           "queued": 20000,
                     *           "done": 480000,
                     *           "total": 1000000,
                     *           "counts": {
                     *             "pushed": 479990,
                     *             "push_refused": 10
                     *           },
                     *           "reasons": [
                     *             {
                     *               "outcome": "pushed",
                     *               "reason": null,
                     *               "count": 479990
                     *             },
                     *             {
                     *               "outcome": "push_refused",
                     *               "reason": "BadTopic",
                     *               "count": 10
                     *             }
                     *           ],
                     *           "errors": 10,
                     *           "rate_per_second": 4000,
                     *           "eta_s": 130,
                     *           "latency": {
                     *             "p50_ms": 310,
                     *             "p99_ms": 1480
                     *           },
                     *           "revision": 1,
                     *           "complete": true,
                     *           "created_by": "key:backend",
                     *           "edited_by": "key:backend",
                     *           "edited_at": null,
                     *           "authors": [
                     *             "key:backend"
                     *           ],
                     *           "approval": null
                     *         }
                     *       ],
                     *       "next": null
                     *     }
                     */
                    "application/json": components["schemas"]["Campaigns"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    createCampaign: {
        parameters: {
            query?: {
                draft?: boolean;
                dry_run?: boolean;
            };
            header?: {
                "Idempotency-Key"?: string;
                traceparent?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewCampaign"];
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
                     *       "devices": 1000,
                     *       "users": 800,
                     *       "no_push_token": 40,
                     *       "suspect": 2,
                     *       "filtered": 9000,
                     *       "by_service": {
                     *         "apns": 600,
                     *         "fcm": 358
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["CampaignCount"];
                };
            };
            201: {
                headers: {
                    "Idempotent-Replayed"?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "id": "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c20",
                     *       "name": "Spring",
                     *       "state": "running",
                     *       "audience": {
                     *         "topic": "news",
                     *         "devices": {
                     *           "platforms": [
                     *             "ios"
                     *           ]
                     *         }
                     *       },
                     *       "message": {
                     *         "notification": {
                     *           "title": "Hello"
                     *         },
                     *         "urgency": "normal",
                     *         "ttl": "2h",
                     *         "push": {
                     *           "mode": "always"
                     *         }
                     *       },
                     *       "locales": [
                     *         "ja"
                     *       ],
                     *       "experiment": null,
                     *       "lane": "campaign",
                     *       "schedule": {
                     *         "local_time": null,
                     *         "quiet_hours": null,
                     *         "rate_per_second": 4000,
                     *         "batch_size": 500
                     *       },
                     *       "notification": "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c21",
                     *       "created_at": "2026-01-15T09:30:00.000Z",
                     *       "start_at": null,
                     *       "started_at": "2026-01-15T09:30:00.100Z",
                     *       "finished_at": null,
                     *       "uploaded": 0,
                     *       "recipients": 500000,
                     *       "queued": 20000,
                     *       "done": 480000,
                     *       "total": 1000000,
                     *       "counts": {
                     *         "pushed": 479990,
                     *         "push_refused": 10
                     *       },
                     *       "reasons": [
                     *         {
                     *           "outcome": "pushed",
                     *           "reason": null,
                     *           "count": 479990
                     *         },
                     *         {
                     *           "outcome": "push_refused",
                     *           "reason": "BadTopic",
                     *           "count": 10
                     *         }
                     *       ],
                     *       "errors": 10,
                     *       "rate_per_second": 4000,
                     *       "eta_s": 130,
                     *       "latency": {
                     *         "p50_ms": 310,
                     *         "p99_ms": 1480
                     *       },
                     *       "revision": 1,
                     *       "complete": true,
                     *       "created_by": "key:backend",
                     *       "edited_by": "key:backend",
                     *       "edited_at": null,
                     *       "authors": [
                     *         "key:backend"
                     *       ],
                     *       "approval": null
                     *     }
                     */
                    "application/json": components["schemas"]["Campaign"];
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
    campaign: {
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
                     *       "name": "Spring",
                     *       "state": "running",
                     *       "audience": {
                     *         "topic": "news",
                     *         "devices": {
                     *           "platforms": [
                     *             "ios"
                     *           ]
                     *         }
                     *       },
                     *       "message": {
                     *         "notification": {
                     *           "title": "Hello"
                     *         },
                     *         "urgency": "normal",
                     *         "ttl": "2h",
                     *         "push": {
                     *           "mode": "always"
                     *         }
                     *       },
                     *       "locales": [
                     *         "ja"
                     *       ],
                     *       "experiment": null,
                     *       "lane": "campaign",
                     *       "schedule": {
                     *         "local_time": null,
                     *         "quiet_hours": null,
                     *         "rate_per_second": 4000,
                     *         "batch_size": 500
                     *       },
                     *       "notification": "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c21",
                     *       "created_at": "2026-01-15T09:30:00.000Z",
                     *       "start_at": null,
                     *       "started_at": "2026-01-15T09:30:00.100Z",
                     *       "finished_at": null,
                     *       "uploaded": 0,
                     *       "recipients": 500000,
                     *       "queued": 20000,
                     *       "done": 480000,
                     *       "total": 1000000,
                     *       "counts": {
                     *         "pushed": 479990,
                     *         "push_refused": 10
                     *       },
                     *       "reasons": [
                     *         {
                     *           "outcome": "pushed",
                     *           "reason": null,
                     *           "count": 479990
                     *         },
                     *         {
                     *           "outcome": "push_refused",
                     *           "reason": "BadTopic",
                     *           "count": 10
                     *         }
                     *       ],
                     *       "errors": 10,
                     *       "rate_per_second": 4000,
                     *       "eta_s": 130,
                     *       "latency": {
                     *         "p50_ms": 310,
                     *         "p99_ms": 1480
                     *       },
                     *       "revision": 1,
                     *       "complete": true,
                     *       "created_by": "key:backend",
                     *       "edited_by": "key:backend",
                     *       "edited_at": null,
                     *       "authors": [
                     *         "key:backend"
                     *       ],
                     *       "approval": null
                     *     }
                     */
                    "application/json": components["schemas"]["Campaign"];
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
    deleteCampaign: {
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
    changeCampaign: {
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
                 *       "revision": 3,
                 *       "message": {
                 *         "notification": {
                 *           "title": "Hello"
                 *         }
                 *       },
                 *       "local_time": null
                 *     }
                 */
                "application/json": components["schemas"]["CampaignChange"];
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
                     *       "name": "Spring",
                     *       "state": "draft",
                     *       "audience": {},
                     *       "message": {
                     *         "notification": {
                     *           "title": "Hello"
                     *         },
                     *         "urgency": "normal",
                     *         "ttl": "2h",
                     *         "push": {
                     *           "mode": "always"
                     *         }
                     *       },
                     *       "locales": [],
                     *       "experiment": null,
                     *       "lane": "campaign",
                     *       "schedule": {
                     *         "local_time": null,
                     *         "quiet_hours": null,
                     *         "rate_per_second": 4000,
                     *         "batch_size": 500
                     *       },
                     *       "notification": "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c21",
                     *       "created_at": "2026-01-15T09:30:00.000Z",
                     *       "start_at": null,
                     *       "started_at": null,
                     *       "finished_at": null,
                     *       "uploaded": 0,
                     *       "recipients": 0,
                     *       "queued": 0,
                     *       "done": 0,
                     *       "total": null,
                     *       "counts": {},
                     *       "reasons": [],
                     *       "errors": 0,
                     *       "rate_per_second": 0,
                     *       "eta_s": null,
                     *       "latency": {
                     *         "p50_ms": null,
                     *         "p99_ms": null
                     *       },
                     *       "revision": 4,
                     *       "complete": false,
                     *       "created_by": "ann@example.com",
                     *       "edited_by": "ben@example.com",
                     *       "edited_at": "2026-01-15T09:31:00.000Z",
                     *       "authors": [
                     *         "ann@example.com",
                     *         "ben@example.com"
                     *       ],
                     *       "approval": null,
                     *       "definition": {
                     *         "name": "Spring",
                     *         "audience": {
                     *           "topic": ""
                     *         },
                     *         "message": {
                     *           "notification": {
                     *             "title": "Hello"
                     *           }
                     *         }
                     *       },
                     *       "problems": [
                     *         {
                     *           "field": "audience.topic",
                     *           "code": "invalid_field",
                     *           "detail": "a topic is not empty"
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["Campaign"];
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
    abortCampaign: {
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
                     *       "name": "Spring",
                     *       "state": "running",
                     *       "audience": {
                     *         "topic": "news",
                     *         "devices": {
                     *           "platforms": [
                     *             "ios"
                     *           ]
                     *         }
                     *       },
                     *       "message": {
                     *         "notification": {
                     *           "title": "Hello"
                     *         },
                     *         "urgency": "normal",
                     *         "ttl": "2h",
                     *         "push": {
                     *           "mode": "always"
                     *         }
                     *       },
                     *       "locales": [
                     *         "ja"
                     *       ],
                     *       "experiment": null,
                     *       "lane": "campaign",
                     *       "schedule": {
                     *         "local_time": null,
                     *         "quiet_hours": null,
                     *         "rate_per_second": 4000,
                     *         "batch_size": 500
                     *       },
                     *       "notification": "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c21",
                     *       "created_at": "2026-01-15T09:30:00.000Z",
                     *       "start_at": null,
                     *       "started_at": "2026-01-15T09:30:00.100Z",
                     *       "finished_at": null,
                     *       "uploaded": 0,
                     *       "recipients": 500000,
                     *       "queued": 20000,
                     *       "done": 480000,
                     *       "total": 1000000,
                     *       "counts": {
                     *         "pushed": 479990,
                     *         "push_refused": 10
                     *       },
                     *       "reasons": [
                     *         {
                     *           "outcome": "pushed",
                     *           "reason": null,
                     *           "count": 479990
                     *         },
                     *         {
                     *           "outcome": "push_refused",
                     *           "reason": "BadTopic",
                     *           "count": 10
                     *         }
                     *       ],
                     *       "errors": 10,
                     *       "rate_per_second": 4000,
                     *       "eta_s": 130,
                     *       "latency": {
                     *         "p50_ms": 310,
                     *         "p99_ms": 1480
                     *       },
                     *       "revision": 1,
                     *       "complete": true,
                     *       "created_by": "key:backend",
                     *       "edited_by": "key:backend",
                     *       "edited_at": null,
                     *       "authors": [
                     *         "key:backend"
                     *       ],
                     *       "approval": null
                     *     }
                     */
                    "application/json": components["schemas"]["Campaign"];
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
    estimateCampaign: {
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
                     *       "exact": true,
                     *       "examined": 1200,
                     *       "revision": 4,
                     *       "devices": {
                     *         "value": 1000,
                     *         "low": 1000,
                     *         "high": 1000
                     *       },
                     *       "users": {
                     *         "value": 800,
                     *         "low": 800,
                     *         "high": 800
                     *       },
                     *       "no_push_token": {
                     *         "value": 40,
                     *         "low": 40,
                     *         "high": 40
                     *       },
                     *       "suspect": {
                     *         "value": 2,
                     *         "low": 2,
                     *         "high": 2
                     *       },
                     *       "by_service": {
                     *         "apns": {
                     *           "value": 600,
                     *           "low": 600,
                     *           "high": 600
                     *         },
                     *         "fcm": {
                     *           "value": 358,
                     *           "low": 358,
                     *           "high": 358
                     *         }
                     *       },
                     *       "by_locale": [
                     *         {
                     *           "locale": "ja",
                     *           "devices": {
                     *             "value": 900,
                     *             "low": 900,
                     *             "high": 900
                     *           }
                     *         },
                     *         {
                     *           "locale": null,
                     *           "devices": {
                     *             "value": 100,
                     *             "low": 100,
                     *             "high": 100
                     *           }
                     *         }
                     *       ],
                     *       "other_locales": {
                     *         "value": 0,
                     *         "low": 0,
                     *         "high": 0
                     *       },
                     *       "sample": [
                     *         {
                     *           "device": "d1",
                     *           "user": "u1",
                     *           "platform": "ios",
                     *           "locale": "ja",
                     *           "timezone": "Asia/Tokyo",
                     *           "service": "apns"
                     *         }
                     *       ],
                     *       "forecast": {
                     *         "starts_at": "2026-01-15T09:30:00.000Z",
                     *         "ends_at": "2026-01-15T09:30:02.000Z",
                     *         "rate_per_second": 500,
                     *         "rate_from": "measured",
                     *         "measured_campaigns": 3,
                     *         "steps": [
                     *           {
                     *             "due_at": "2026-01-15T09:30:00.000Z",
                     *             "devices": 958
                     *           }
                     *         ]
                     *       },
                     *       "approval_above": null,
                     *       "needs_approval": false
                     *     }
                     */
                    "application/json": components["schemas"]["CampaignEstimate"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            429: components["responses"]["TooManyRequests"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    pauseCampaign: {
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
                     *       "name": "Spring",
                     *       "state": "running",
                     *       "audience": {
                     *         "topic": "news",
                     *         "devices": {
                     *           "platforms": [
                     *             "ios"
                     *           ]
                     *         }
                     *       },
                     *       "message": {
                     *         "notification": {
                     *           "title": "Hello"
                     *         },
                     *         "urgency": "normal",
                     *         "ttl": "2h",
                     *         "push": {
                     *           "mode": "always"
                     *         }
                     *       },
                     *       "locales": [
                     *         "ja"
                     *       ],
                     *       "experiment": null,
                     *       "lane": "campaign",
                     *       "schedule": {
                     *         "local_time": null,
                     *         "quiet_hours": null,
                     *         "rate_per_second": 4000,
                     *         "batch_size": 500
                     *       },
                     *       "notification": "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c21",
                     *       "created_at": "2026-01-15T09:30:00.000Z",
                     *       "start_at": null,
                     *       "started_at": "2026-01-15T09:30:00.100Z",
                     *       "finished_at": null,
                     *       "uploaded": 0,
                     *       "recipients": 500000,
                     *       "queued": 20000,
                     *       "done": 480000,
                     *       "total": 1000000,
                     *       "counts": {
                     *         "pushed": 479990,
                     *         "push_refused": 10
                     *       },
                     *       "reasons": [
                     *         {
                     *           "outcome": "pushed",
                     *           "reason": null,
                     *           "count": 479990
                     *         },
                     *         {
                     *           "outcome": "push_refused",
                     *           "reason": "BadTopic",
                     *           "count": 10
                     *         }
                     *       ],
                     *       "errors": 10,
                     *       "rate_per_second": 4000,
                     *       "eta_s": 130,
                     *       "latency": {
                     *         "p50_ms": 310,
                     *         "p99_ms": 1480
                     *       },
                     *       "revision": 1,
                     *       "complete": true,
                     *       "created_by": "key:backend",
                     *       "edited_by": "key:backend",
                     *       "edited_at": null,
                     *       "authors": [
                     *         "key:backend"
                     *       ],
                     *       "approval": null
                     *     }
                     */
                    "application/json": components["schemas"]["Campaign"];
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
    uploadRecipients: {
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
                 * @example {"user":"u1","variables":{"name":"Ana"}}
                 *     {"user":"u2","notification":{"title":"Only for you"}}
                 */
                "application/x-ndjson": string;
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {"user":"u1"}
                     *     {"user":"u2"}
                     */
                    "application/x-ndjson": string;
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
    campaignRecipient: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                id: string;
                user: string;
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
                     *       "user": "u1",
                     *       "variables": {
                     *         "name": "Ann"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["CampaignRecipient"];
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
    resumeCampaign: {
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
                     *       "name": "Spring",
                     *       "state": "running",
                     *       "audience": {
                     *         "topic": "news",
                     *         "devices": {
                     *           "platforms": [
                     *             "ios"
                     *           ]
                     *         }
                     *       },
                     *       "message": {
                     *         "notification": {
                     *           "title": "Hello"
                     *         },
                     *         "urgency": "normal",
                     *         "ttl": "2h",
                     *         "push": {
                     *           "mode": "always"
                     *         }
                     *       },
                     *       "locales": [
                     *         "ja"
                     *       ],
                     *       "experiment": null,
                     *       "lane": "campaign",
                     *       "schedule": {
                     *         "local_time": null,
                     *         "quiet_hours": null,
                     *         "rate_per_second": 4000,
                     *         "batch_size": 500
                     *       },
                     *       "notification": "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c21",
                     *       "created_at": "2026-01-15T09:30:00.000Z",
                     *       "start_at": null,
                     *       "started_at": "2026-01-15T09:30:00.100Z",
                     *       "finished_at": null,
                     *       "uploaded": 0,
                     *       "recipients": 500000,
                     *       "queued": 20000,
                     *       "done": 480000,
                     *       "total": 1000000,
                     *       "counts": {
                     *         "pushed": 479990,
                     *         "push_refused": 10
                     *       },
                     *       "reasons": [
                     *         {
                     *           "outcome": "pushed",
                     *           "reason": null,
                     *           "count": 479990
                     *         },
                     *         {
                     *           "outcome": "push_refused",
                     *           "reason": "BadTopic",
                     *           "count": 10
                     *         }
                     *       ],
                     *       "errors": 10,
                     *       "rate_per_second": 4000,
                     *       "eta_s": 130,
                     *       "latency": {
                     *         "p50_ms": 310,
                     *         "p99_ms": 1480
                     *       },
                     *       "revision": 1,
                     *       "complete": true,
                     *       "created_by": "key:backend",
                     *       "edited_by": "key:backend",
                     *       "edited_at": null,
                     *       "authors": [
                     *         "key:backend"
                     *       ],
                     *       "approval": null
                     *     }
                     */
                    "application/json": components["schemas"]["Campaign"];
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
    startCampaign: {
        parameters: {
            query?: {
                revision?: number;
            };
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
                     *       "name": "Spring",
                     *       "state": "running",
                     *       "audience": {
                     *         "topic": "news",
                     *         "devices": {
                     *           "platforms": [
                     *             "ios"
                     *           ]
                     *         }
                     *       },
                     *       "message": {
                     *         "notification": {
                     *           "title": "Hello"
                     *         },
                     *         "urgency": "normal",
                     *         "ttl": "2h",
                     *         "push": {
                     *           "mode": "always"
                     *         }
                     *       },
                     *       "locales": [
                     *         "ja"
                     *       ],
                     *       "experiment": null,
                     *       "lane": "campaign",
                     *       "schedule": {
                     *         "local_time": null,
                     *         "quiet_hours": null,
                     *         "rate_per_second": 4000,
                     *         "batch_size": 500
                     *       },
                     *       "notification": "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c21",
                     *       "created_at": "2026-01-15T09:30:00.000Z",
                     *       "start_at": null,
                     *       "started_at": "2026-01-15T09:30:00.100Z",
                     *       "finished_at": null,
                     *       "uploaded": 0,
                     *       "recipients": 500000,
                     *       "queued": 20000,
                     *       "done": 480000,
                     *       "total": 1000000,
                     *       "counts": {
                     *         "pushed": 479990,
                     *         "push_refused": 10
                     *       },
                     *       "reasons": [
                     *         {
                     *           "outcome": "pushed",
                     *           "reason": null,
                     *           "count": 479990
                     *         },
                     *         {
                     *           "outcome": "push_refused",
                     *           "reason": "BadTopic",
                     *           "count": 10
                     *         }
                     *       ],
                     *       "errors": 10,
                     *       "rate_per_second": 4000,
                     *       "eta_s": 130,
                     *       "latency": {
                     *         "p50_ms": 310,
                     *         "p99_ms": 1480
                     *       },
                     *       "revision": 1,
                     *       "complete": true,
                     *       "created_by": "key:backend",
                     *       "edited_by": "key:backend",
                     *       "edited_at": null,
                     *       "authors": [
                     *         "key:backend"
                     *       ],
                     *       "approval": null
                     *     }
                     */
                    "application/json": components["schemas"]["Campaign"];
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
    connect: {
        parameters: {
            query?: {
                app?: string;
                token?: string;
            };
            header?: {
                "Noroshi-App"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            101: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            401: components["responses"]["Unauthorized"];
            426: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            503: components["responses"]["Overloaded"];
        };
    };
    devices: {
        parameters: {
            query?: {
                after?: string;
                kind?: "alert" | "webpush" | "fcm" | "voip" | "complication" | "fileprovider" | "widgets" | "controls" | "live-activity-start" | "live-activity" | "webhook" | "hms" | "wns";
                limit?: number;
                platform?: "ios" | "android" | "web" | "console" | "other";
                seen?: "never";
                seen_after?: string;
                seen_before?: string;
                service?: "apns" | "fcm" | "webpush" | "webhook" | "hms" | "wns";
                token?: "none" | "any" | "usable" | "suspended";
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
                     * @example {
                     *       "devices": [
                     *         {
                     *           "device": "3f1c0a9be2d84d6f8a57c1e09b6d2f44",
                     *           "user": "u1",
                     *           "platform": "ios",
                     *           "locale": "ja-JP",
                     *           "timezone": "Asia/Tokyo",
                     *           "app_version": "1.2.3",
                     *           "tags": {
                     *             "plan": "pro"
                     *           },
                     *           "topics": [
                     *             "news"
                     *           ],
                     *           "push_token": null,
                     *           "push_suspect": null,
                     *           "push_tokens": [],
                     *           "presence": "idle",
                     *           "created_at": "2026-01-15T09:30:00.000Z",
                     *           "last_seen": "2026-02-03"
                     *         }
                     *       ],
                     *       "next": null
                     *     }
                     */
                    "application/json": components["schemas"]["Devices"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    registerDevice: {
        parameters: {
            query?: {
                app?: string;
            };
            header?: {
                "Noroshi-App"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: {
            content: {
                /**
                 * @example {
                 *       "user": "u1",
                 *       "platform": "ios",
                 *       "locale": "ja-JP",
                 *       "timezone": "Asia/Tokyo",
                 *       "app_version": "1.2.3",
                 *       "tags": {
                 *         "plan": "pro"
                 *       },
                 *       "topics": [
                 *         "news"
                 *       ]
                 *     }
                 */
                "application/json": components["schemas"]["DeviceRegistration"];
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
                     *       "device": "3f1c0a9be2d84d6f8a57c1e09b6d2f44",
                     *       "token": "nd1.…",
                     *       "expires_at": "2026-02-14T09:30:00.000Z",
                     *       "connect": {
                     *         "websocket": "wss://push.example.com/v1/connect",
                     *         "sse": "https://push.example.com/v1/events",
                     *         "socketio": "https://push.example.com",
                     *         "mqtt": "wss://push.example.com/mqtt",
                     *         "xmpp": "wss://push.example.com/xmpp"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["Registered"];
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
    device: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                device: string;
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
                     *       "device": "3f1c0a9be2d84d6f8a57c1e09b6d2f44",
                     *       "user": "u1",
                     *       "platform": "ios",
                     *       "locale": "ja-JP",
                     *       "timezone": "Asia/Tokyo",
                     *       "app_version": "1.2.3",
                     *       "tags": {
                     *         "plan": "pro"
                     *       },
                     *       "topics": [
                     *         "news"
                     *       ],
                     *       "push_token": null,
                     *       "push_suspect": null,
                     *       "push_tokens": [],
                     *       "presence": "idle",
                     *       "created_at": "2026-01-15T09:30:00.000Z",
                     *       "last_seen": "2026-02-03"
                     *     }
                     */
                    "application/json": components["schemas"]["Device"];
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
    deleteDevice: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                device: string;
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
    listDeviceEndpoints: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                device: string;
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
                     *       "endpoints": [
                     *         {
                     *           "id": "12",
                     *           "label": "chat",
                     *           "vapid_key": null,
                     *           "idle_urgency": "normal",
                     *           "created_at": "2026-01-15T09:30:00.000Z",
                     *           "expires_at": null
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["Endpoints"];
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
    deleteDeviceEndpoint: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                device: string;
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
    preferencesOfDevice: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                device: string;
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
                     *       "channels": [
                     *         "live",
                     *         "push"
                     *       ],
                     *       "muted_topics": [
                     *         "news"
                     *       ],
                     *       "categories": {
                     *         "promo": {
                     *           "muted": true
                     *         },
                     *         "news": {
                     *           "channels": [
                     *             "inbox"
                     *           ],
                     *           "daily_max": 3
                     *         }
                     *       },
                     *       "quiet_hours": {
                     *         "from": "22:00",
                     *         "to": "07:00",
                     *         "timezone": "Asia/Tokyo"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["Preferences"];
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
    setPreferencesOfDevice: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                device: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "channels": [
                 *         "live",
                 *         "push"
                 *       ],
                 *       "muted_topics": [
                 *         "news"
                 *       ],
                 *       "categories": {
                 *         "promo": {
                 *           "muted": true
                 *         },
                 *         "news": {
                 *           "channels": [
                 *             "inbox"
                 *           ],
                 *           "daily_max": 3
                 *         }
                 *       },
                 *       "quiet_hours": {
                 *         "from": "22:00",
                 *         "to": "07:00",
                 *         "timezone": "Asia/Tokyo"
                 *       }
                 *     }
                 */
                "application/json": components["schemas"]["Preferences"];
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
                     *       "channels": [
                     *         "live",
                     *         "push"
                     *       ],
                     *       "muted_topics": [
                     *         "news"
                     *       ],
                     *       "categories": {
                     *         "promo": {
                     *           "muted": true
                     *         },
                     *         "news": {
                     *           "channels": [
                     *             "inbox"
                     *           ],
                     *           "daily_max": 3
                     *         }
                     *       },
                     *       "quiet_hours": {
                     *         "from": "22:00",
                     *         "to": "07:00",
                     *         "timezone": "Asia/Tokyo"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["Preferences"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            408: components["responses"]["BodyTimeout"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    clearPreferencesOfDevice: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                device: string;
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
    listDevicePushTokens: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                device: string;
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
                     *       "push_tokens": [
                     *         {
                     *           "kind": "alert",
                     *           "name": "",
                     *           "service": "apns",
                     *           "environment": "production",
                     *           "topic": null,
                     *           "registered_at": "2026-01-15T09:30:00.000Z",
                     *           "expires_at": null,
                     *           "suspect": null,
                     *           "main": true,
                     *           "token": {
                     *             "service": "apns",
                     *             "token": "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0",
                     *             "environment": "production"
                     *           }
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["DevicePushTokens"];
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
    setDevicePushToken: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                device: string;
                kind: "alert" | "webpush" | "fcm" | "voip" | "complication" | "fileprovider" | "widgets" | "controls" | "live-activity-start" | "live-activity" | "webhook" | "hms" | "wns";
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "token": "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0",
                 *       "environment": "production"
                 *     }
                 */
                "application/json": components["schemas"]["NewPushToken"];
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
    removeDevicePushToken: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                device: string;
                kind: "alert" | "webpush" | "fcm" | "voip" | "complication" | "fileprovider" | "widgets" | "controls" | "live-activity-start" | "live-activity" | "webhook" | "hms" | "wns";
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
    setDeviceNamedPushToken: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                device: string;
                kind: "alert" | "webpush" | "fcm" | "voip" | "complication" | "fileprovider" | "widgets" | "controls" | "live-activity-start" | "live-activity" | "webhook" | "hms" | "wns";
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "token": "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0",
                 *       "environment": "production"
                 *     }
                 */
                "application/json": components["schemas"]["NewPushToken"];
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
    removeDeviceNamedPushToken: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                device: string;
                kind: "alert" | "webpush" | "fcm" | "voip" | "complication" | "fileprovider" | "widgets" | "controls" | "live-activity-start" | "live-activity" | "webhook" | "hms" | "wns";
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
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    revokeDevice: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                device: string;
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
                     *       "device": "d1",
                     *       "token_version": 2
                     *     }
                     */
                    "application/json": components["schemas"]["Revoked"];
                };
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
    topicPermission: {
        parameters: {
            query?: {
                action?: "subscribe" | "publish";
            };
            header?: never;
            path: {
                device: string;
                topic: string;
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
                     *       "device": "d1",
                     *       "user": "u1",
                     *       "topic": "user/u1/mail",
                     *       "action": "subscribe",
                     *       "decision": "allowed",
                     *       "reason": null,
                     *       "detail": "the rule allows it",
                     *       "rule": {
                     *         "number": 0,
                     *         "topic": "user/{user}/#",
                     *         "allow": "anyone"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["TopicPermission"];
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
    importDevices: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {"device":"d1","user":"u1","platform":"ios","topics":["news"]}
                 *     {"device":"d2","user":"u2"}
                 */
                "application/x-ndjson": string;
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /** @example {"device":"d1","token":"nd1.\u2026"} */
                    "application/x-ndjson": string;
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            408: components["responses"]["BodyTimeout"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    events: {
        parameters: {
            query?: {
                app?: string;
                token?: string;
                topics?: string;
            };
            header?: {
                "Last-Event-ID"?: string;
                "Noroshi-App"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    "Content-Encoding"?: "gzip";
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example event: msg
                     *     id: 0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c10
                     *     data: {"t":"msg",…}
                     */
                    "text/event-stream": string;
                };
            };
            400: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/problem+json": components["schemas"]["Problem"];
                };
            };
            401: components["responses"]["Unauthorized"];
            503: components["responses"]["Overloaded"];
        };
    };
    me: {
        parameters: {
            query?: {
                app?: string;
            };
            header?: {
                "If-None-Match"?: string;
                "Noroshi-App"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            200: {
                headers: {
                    ETag?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "device": "3f1c0a9be2d84d6f8a57c1e09b6d2f44",
                     *       "user": "u1",
                     *       "platform": "ios",
                     *       "locale": "ja-JP",
                     *       "timezone": "Asia/Tokyo",
                     *       "app_version": "1.2.3",
                     *       "tags": {
                     *         "plan": "pro"
                     *       },
                     *       "topics": [
                     *         "news"
                     *       ],
                     *       "push_token": null,
                     *       "push_suspect": null,
                     *       "push_tokens": [],
                     *       "presence": "idle",
                     *       "created_at": "2026-01-15T09:30:00.000Z",
                     *       "inbox": 3,
                     *       "unread_items": 3,
                     *       "preferences": {
                     *         "user": {
                     *           "categories": {
                     *             "promo": {
                     *               "muted": true
                     *             }
                     *           }
                     *         },
                     *         "device": null
                     *       },
                     *       "messages": [
                     *         {
                     *           "t": "msg",
                     *           "id": "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c10",
                     *           "notification": {
                     *             "title": "Hello"
                     *           },
                     *           "ack": true,
                     *           "sent_at": "2026-01-15T09:30:00.000Z"
                     *         }
                     *       ],
                     *       "experiments": {
                     *         "checkout-button": {
                     *           "variant": "green",
                     *           "data": {
                     *             "colour": "#0a0"
                     *           }
                     *         }
                     *       },
                     *       "maintenance": [
                     *         {
                     *           "name": "payments",
                     *           "state": "active",
                     *           "starts_at": "2026-01-15T09:30:00.000Z",
                     *           "ends_at": "2026-01-15T11:00:00.000Z",
                     *           "notification": {
                     *             "title": "決済は11時まで休止します"
                     *           },
                     *           "data": {
                     *             "services": [
                     *               "payments"
                     *             ]
                     *           }
                     *         }
                     *       ],
                     *       "connect": {
                     *         "websocket": "wss://push.example.com/v1/connect",
                     *         "sse": "https://push.example.com/v1/events",
                     *         "socketio": "https://push.example.com",
                     *         "mqtt": "wss://push.example.com/mqtt",
                     *         "xmpp": "wss://push.example.com/xmpp"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["Me"];
                };
            };
            304: {
                headers: {
                    [name: string]: unknown;
                };
                content?: never;
            };
            401: components["responses"]["Unauthorized"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    deleteMe: {
        parameters: {
            query?: {
                app?: string;
            };
            header?: {
                "Noroshi-App"?: string;
            };
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
            401: components["responses"]["Unauthorized"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    changeMe: {
        parameters: {
            query?: {
                app?: string;
            };
            header?: {
                "Noroshi-App"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "locale": "en-GB",
                 *       "tags": {
                 *         "plan": "free",
                 *         "trial": null
                 *       }
                 *     }
                 */
                "application/json": components["schemas"]["DeviceChange"];
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
                     *       "device": "3f1c0a9be2d84d6f8a57c1e09b6d2f44",
                     *       "user": "u1",
                     *       "platform": "ios",
                     *       "locale": "ja-JP",
                     *       "timezone": "Asia/Tokyo",
                     *       "app_version": "1.2.3",
                     *       "tags": {
                     *         "plan": "pro"
                     *       },
                     *       "topics": [
                     *         "news"
                     *       ],
                     *       "push_token": null,
                     *       "push_suspect": null,
                     *       "push_tokens": [],
                     *       "presence": "idle",
                     *       "created_at": "2026-01-15T09:30:00.000Z",
                     *       "inbox": 3,
                     *       "unread_items": 3,
                     *       "preferences": {
                     *         "user": {
                     *           "categories": {
                     *             "promo": {
                     *               "muted": true
                     *             }
                     *           }
                     *         },
                     *         "device": null
                     *       },
                     *       "messages": [
                     *         {
                     *           "t": "msg",
                     *           "id": "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c10",
                     *           "notification": {
                     *             "title": "Hello"
                     *           },
                     *           "ack": true,
                     *           "sent_at": "2026-01-15T09:30:00.000Z"
                     *         }
                     *       ],
                     *       "experiments": {
                     *         "checkout-button": {
                     *           "variant": "green",
                     *           "data": {
                     *             "colour": "#0a0"
                     *           }
                     *         }
                     *       },
                     *       "maintenance": [
                     *         {
                     *           "name": "payments",
                     *           "state": "active",
                     *           "starts_at": "2026-01-15T09:30:00.000Z",
                     *           "ends_at": "2026-01-15T11:00:00.000Z",
                     *           "notification": {
                     *             "title": "決済は11時まで休止します"
                     *           },
                     *           "data": {
                     *             "services": [
                     *               "payments"
                     *             ]
                     *           }
                     *         }
                     *       ],
                     *       "connect": {
                     *         "websocket": "wss://push.example.com/v1/connect",
                     *         "sse": "https://push.example.com/v1/events",
                     *         "socketio": "https://push.example.com",
                     *         "mqtt": "wss://push.example.com/mqtt",
                     *         "xmpp": "wss://push.example.com/xmpp"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["Me"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            408: components["responses"]["BodyTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    endpoints: {
        parameters: {
            query?: {
                app?: string;
            };
            header?: {
                "Noroshi-App"?: string;
            };
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
                     *       "endpoints": [
                     *         {
                     *           "id": "12",
                     *           "label": "chat",
                     *           "vapid_key": null,
                     *           "idle_urgency": "normal",
                     *           "created_at": "2026-01-15T09:30:00.000Z",
                     *           "expires_at": null
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["Endpoints"];
                };
            };
            401: components["responses"]["Unauthorized"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    createEndpoint: {
        parameters: {
            query?: {
                app?: string;
            };
            header?: {
                "Noroshi-App"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody?: {
            content: {
                /**
                 * @example {
                 *       "vapid_key": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
                 *       "label": "chat",
                 *       "idle_urgency": "normal",
                 *       "expires_in": "90d"
                 *     }
                 */
                "application/json": components["schemas"]["NewEndpoint"];
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
                     *       "id": "12",
                     *       "url": "https://push.example.com/push/mVcDRXjlPXnG2VjOaD4wQ9Jw1tNkYwGkX3J0nq4T2bQ",
                     *       "label": "chat",
                     *       "vapid_key": null,
                     *       "idle_urgency": "normal",
                     *       "created_at": "2026-01-15T09:30:00.000Z",
                     *       "expires_at": null
                     *     }
                     */
                    "application/json": components["schemas"]["Endpoint"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
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
    deleteEndpoint: {
        parameters: {
            query?: {
                app?: string;
            };
            header?: {
                "Noroshi-App"?: string;
            };
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
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    exposures: {
        parameters: {
            query?: {
                app?: string;
            };
            header?: {
                "Noroshi-App"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "experiments": [
                 *         "checkout-button"
                 *       ]
                 *     }
                 */
                "application/json": components["schemas"]["Exposures"];
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
                     *       "exposed": {
                     *         "checkout-button": "green"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["Exposed"];
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
    inbox: {
        parameters: {
            query?: {
                app?: string;
                limit?: number;
            };
            header?: {
                "Noroshi-App"?: string;
            };
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
                     *       "messages": [
                     *         {
                     *           "t": "msg",
                     *           "id": "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c10",
                     *           "topic": "news",
                     *           "epoch": "5f3a91c2",
                     *           "offset": 42,
                     *           "notification": {
                     *             "title": "Goal!",
                     *             "body": "2:1"
                     *           },
                     *           "data": {
                     *             "match": 7
                     *           },
                     *           "ack": true,
                     *           "sent_at": "2026-01-15T09:30:00.000Z"
                     *         }
                     *       ],
                     *       "total": 1
                     *     }
                     */
                    "application/json": components["schemas"]["Inbox"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    ack: {
        parameters: {
            query?: {
                app?: string;
            };
            header?: {
                "Noroshi-App"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "ids": [
                 *         "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c10"
                 *       ]
                 *     }
                 */
                "application/json": components["schemas"]["Ack"];
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
                     *       "acked": 1
                     *     }
                     */
                    "application/json": components["schemas"]["Acked"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            408: components["responses"]["BodyTimeout"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    items: {
        parameters: {
            query?: {
                after?: string;
                app?: string;
                category?: string;
                limit?: number;
                state?: "unread" | "read" | "archived" | "all";
            };
            header?: {
                "Noroshi-App"?: string;
            };
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
                     *       "items": [
                     *         {
                     *           "id": "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c10",
                     *           "state": "unread",
                     *           "category": "orders",
                     *           "created_at": "2026-01-15T09:30:00.000Z",
                     *           "changed_at": "2026-01-15T09:30:00.000Z",
                     *           "expires_at": "2026-02-14T09:30:00.000Z",
                     *           "notification": {
                     *             "title": "Your order has shipped"
                     *           },
                     *           "data": {
                     *             "order": 7
                     *           }
                     *         }
                     *       ],
                     *       "next": null
                     *     }
                     */
                    "application/json": components["schemas"]["Items"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    changeItems: {
        parameters: {
            query?: {
                app?: string;
            };
            header?: {
                "Noroshi-App"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["ItemChange"];
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
                     *       "changed": 1,
                     *       "unread": 3,
                     *       "categories": {
                     *         "orders": 2
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ItemsChanged"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            408: components["responses"]["BodyTimeout"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    itemCounts: {
        parameters: {
            query?: {
                app?: string;
            };
            header?: {
                "Noroshi-App"?: string;
            };
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
                     *       "unread": 3,
                     *       "categories": {
                     *         "orders": 2
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ItemCounts"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    opened: {
        parameters: {
            query?: {
                app?: string;
            };
            header?: {
                "Noroshi-App"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "ids": [
                 *         "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c10"
                 *       ]
                 *     }
                 */
                "application/json": components["schemas"]["Opening"];
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
                     *       "opened": 1
                     *     }
                     */
                    "application/json": components["schemas"]["Opened"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            408: components["responses"]["BodyTimeout"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    ownPreferences: {
        parameters: {
            query?: {
                app?: string;
            };
            header?: {
                "Noroshi-App"?: string;
            };
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
                     *       "channels": [
                     *         "live",
                     *         "push"
                     *       ],
                     *       "muted_topics": [
                     *         "news"
                     *       ],
                     *       "categories": {
                     *         "promo": {
                     *           "muted": true
                     *         },
                     *         "news": {
                     *           "channels": [
                     *             "inbox"
                     *           ],
                     *           "daily_max": 3
                     *         }
                     *       },
                     *       "quiet_hours": {
                     *         "from": "22:00",
                     *         "to": "07:00",
                     *         "timezone": "Asia/Tokyo"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["Preferences"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    setOwnPreferences: {
        parameters: {
            query?: {
                app?: string;
            };
            header?: {
                "Noroshi-App"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "channels": [
                 *         "live",
                 *         "push"
                 *       ],
                 *       "muted_topics": [
                 *         "news"
                 *       ],
                 *       "categories": {
                 *         "promo": {
                 *           "muted": true
                 *         },
                 *         "news": {
                 *           "channels": [
                 *             "inbox"
                 *           ],
                 *           "daily_max": 3
                 *         }
                 *       },
                 *       "quiet_hours": {
                 *         "from": "22:00",
                 *         "to": "07:00",
                 *         "timezone": "Asia/Tokyo"
                 *       }
                 *     }
                 */
                "application/json": components["schemas"]["Preferences"];
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
                     *       "channels": [
                     *         "live",
                     *         "push"
                     *       ],
                     *       "muted_topics": [
                     *         "news"
                     *       ],
                     *       "categories": {
                     *         "promo": {
                     *           "muted": true
                     *         },
                     *         "news": {
                     *           "channels": [
                     *             "inbox"
                     *           ],
                     *           "daily_max": 3
                     *         }
                     *       },
                     *       "quiet_hours": {
                     *         "from": "22:00",
                     *         "to": "07:00",
                     *         "timezone": "Asia/Tokyo"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["Preferences"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            408: components["responses"]["BodyTimeout"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    clearOwnPreferences: {
        parameters: {
            query?: {
                app?: string;
            };
            header?: {
                "Noroshi-App"?: string;
            };
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
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    setPresence: {
        parameters: {
            query?: {
                app?: string;
            };
            header?: {
                "Noroshi-App"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "state": "idle"
                 *     }
                 */
                "application/json": components["schemas"]["PresenceChange"];
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
                     *       "presence": "idle"
                     *     }
                     */
                    "application/json": {
                        presence: components["schemas"]["Presence"];
                    };
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
        };
    };
    setPushToken: {
        parameters: {
            query?: {
                app?: string;
            };
            header?: {
                "Noroshi-App"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "service": "fcm",
                 *       "token": "fP2k:APA91b"
                 *     }
                 */
                "application/json": components["schemas"]["PushToken"];
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
            408: components["responses"]["BodyTimeout"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    listOwnPushTokens: {
        parameters: {
            query?: {
                app?: string;
            };
            header?: {
                "Noroshi-App"?: string;
            };
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
                     *       "push_tokens": [
                     *         {
                     *           "kind": "alert",
                     *           "name": "",
                     *           "service": "apns",
                     *           "environment": "production",
                     *           "topic": null,
                     *           "registered_at": "2026-01-15T09:30:00.000Z",
                     *           "expires_at": null,
                     *           "suspect": null,
                     *           "main": true,
                     *           "token": {
                     *             "service": "apns",
                     *             "token": "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0",
                     *             "environment": "production"
                     *           }
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["DevicePushTokens"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    setOwnPushToken: {
        parameters: {
            query?: {
                app?: string;
            };
            header?: {
                "Noroshi-App"?: string;
            };
            path: {
                kind: "alert" | "webpush" | "fcm" | "voip" | "complication" | "fileprovider" | "widgets" | "controls" | "live-activity-start" | "live-activity" | "webhook" | "hms" | "wns";
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "token": "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0",
                 *       "environment": "production"
                 *     }
                 */
                "application/json": components["schemas"]["NewPushToken"];
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
            408: components["responses"]["BodyTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    removeOwnPushToken: {
        parameters: {
            query?: {
                app?: string;
            };
            header?: {
                "Noroshi-App"?: string;
            };
            path: {
                kind: "alert" | "webpush" | "fcm" | "voip" | "complication" | "fileprovider" | "widgets" | "controls" | "live-activity-start" | "live-activity" | "webhook" | "hms" | "wns";
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
    setOwnNamedPushToken: {
        parameters: {
            query?: {
                app?: string;
            };
            header?: {
                "Noroshi-App"?: string;
            };
            path: {
                kind: "alert" | "webpush" | "fcm" | "voip" | "complication" | "fileprovider" | "widgets" | "controls" | "live-activity-start" | "live-activity" | "webhook" | "hms" | "wns";
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "token": "00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0",
                 *       "environment": "production"
                 *     }
                 */
                "application/json": components["schemas"]["NewPushToken"];
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
            408: components["responses"]["BodyTimeout"];
            409: components["responses"]["Conflict"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    removeOwnNamedPushToken: {
        parameters: {
            query?: {
                app?: string;
            };
            header?: {
                "Noroshi-App"?: string;
            };
            path: {
                kind: "alert" | "webpush" | "fcm" | "voip" | "complication" | "fileprovider" | "widgets" | "controls" | "live-activity-start" | "live-activity" | "webhook" | "hms" | "wns";
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
    subscribe: {
        parameters: {
            query?: {
                app?: string;
            };
            header?: {
                "Noroshi-App"?: string;
            };
            path: {
                topic: string;
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
            409: components["responses"]["Conflict"];
            429: components["responses"]["TooManyRequests"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    unsubscribe: {
        parameters: {
            query?: {
                app?: string;
            };
            header?: {
                "Noroshi-App"?: string;
            };
            path: {
                topic: string;
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
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    preferencesOfOwnUser: {
        parameters: {
            query?: {
                app?: string;
            };
            header?: {
                "Noroshi-App"?: string;
            };
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
                     *       "channels": [
                     *         "live",
                     *         "push"
                     *       ],
                     *       "muted_topics": [
                     *         "news"
                     *       ],
                     *       "categories": {
                     *         "promo": {
                     *           "muted": true
                     *         },
                     *         "news": {
                     *           "channels": [
                     *             "inbox"
                     *           ],
                     *           "daily_max": 3
                     *         }
                     *       },
                     *       "quiet_hours": {
                     *         "from": "22:00",
                     *         "to": "07:00",
                     *         "timezone": "Asia/Tokyo"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["Preferences"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    setPreferencesOfOwnUser: {
        parameters: {
            query?: {
                app?: string;
            };
            header?: {
                "Noroshi-App"?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "channels": [
                 *         "live",
                 *         "push"
                 *       ],
                 *       "muted_topics": [
                 *         "news"
                 *       ],
                 *       "categories": {
                 *         "promo": {
                 *           "muted": true
                 *         },
                 *         "news": {
                 *           "channels": [
                 *             "inbox"
                 *           ],
                 *           "daily_max": 3
                 *         }
                 *       },
                 *       "quiet_hours": {
                 *         "from": "22:00",
                 *         "to": "07:00",
                 *         "timezone": "Asia/Tokyo"
                 *       }
                 *     }
                 */
                "application/json": components["schemas"]["Preferences"];
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
                     *       "channels": [
                     *         "live",
                     *         "push"
                     *       ],
                     *       "muted_topics": [
                     *         "news"
                     *       ],
                     *       "categories": {
                     *         "promo": {
                     *           "muted": true
                     *         },
                     *         "news": {
                     *           "channels": [
                     *             "inbox"
                     *           ],
                     *           "daily_max": 3
                     *         }
                     *       },
                     *       "quiet_hours": {
                     *         "from": "22:00",
                     *         "to": "07:00",
                     *         "timezone": "Asia/Tokyo"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["Preferences"];
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
    clearPreferencesOfOwnUser: {
        parameters: {
            query?: {
                app?: string;
            };
            header?: {
                "Noroshi-App"?: string;
            };
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
            404: components["responses"]["NotFound"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    notifications: {
        parameters: {
            query?: {
                after?: string;
                campaign?: string;
                category?: string;
                device?: string;
                limit?: number;
                since?: string;
                target?: "users" | "devices" | "topic" | "condition" | "everyone" | "campaign";
                topic?: string;
                until?: string;
                urgency?: "very-low" | "low" | "normal" | "high";
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
                     * @example {
                     *       "notifications": [
                     *         {
                     *           "id": "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c10",
                     *           "sent_at": "2026-01-15T09:30:00.000Z",
                     *           "expires_at": "2026-01-22T09:30:00.000Z",
                     *           "when": "stored",
                     *           "urgency": "high",
                     *           "target": {
                     *             "kind": "users"
                     *           },
                     *           "targets": 2,
                     *           "title": "Your order is on its way",
                     *           "text": "It arrives tomorrow.",
                     *           "category": "orders",
                     *           "campaign": null,
                     *           "state": "pending",
                     *           "counts": {
                     *             "kept": 2,
                     *             "acked": 1
                     *           }
                     *         }
                     *       ],
                     *       "next": "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c10",
                     *       "searched_to": "2026-01-15T09:30:00.000Z"
                     *     }
                     */
                    "application/json": components["schemas"]["Notifications"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    publish: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
                traceparent?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["Notification"];
            };
        };
        responses: {
            202: {
                headers: {
                    "Idempotent-Replayed"?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "id": "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c10",
                     *       "targets": 2
                     *     }
                     */
                    "application/json": components["schemas"]["Receipt"];
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
    notification: {
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
                     *       "id": "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c10",
                     *       "state": "pending",
                     *       "when": "stored",
                     *       "urgency": "normal",
                     *       "target": {
                     *         "kind": "users"
                     *       },
                     *       "targets": 2,
                     *       "counts": {
                     *         "kept": 2,
                     *         "acked": 1
                     *       },
                     *       "collapse_key": "score",
                     *       "category": null,
                     *       "retain": false,
                     *       "sent_at": "2026-01-15T09:30:00.000Z",
                     *       "expires_at": "2026-01-16T09:30:00.000Z"
                     *     }
                     */
                    "application/json": components["schemas"]["NotificationState"];
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
    cancel: {
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
                     *       "id": "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c10",
                     *       "removed": 1
                     *     }
                     */
                    "application/json": components["schemas"]["Cancelled"];
                };
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
    trace: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                device: string;
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
                     *       "id": "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c10",
                     *       "device": "d1",
                     *       "steps": [
                     *         {
                     *           "at": "2026-01-15T09:30:00.000Z",
                     *           "outcome": "kept",
                     *           "explain": "stored in the device's inbox, to wait for its acknowledgement"
                     *         }
                     *       ],
                     *       "in_inbox": true,
                     *       "connected": false,
                     *       "subscribed": false,
                     *       "targeted_by": "user",
                     *       "targeting": "The request named the device's user \"u1\".",
                     *       "reason": "offline"
                     *     }
                     */
                    "application/json": components["schemas"]["Trace"];
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
    publishBatch: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
                traceparent?: string;
            };
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {"to":{"users":["u1"]},"notification":{"title":"Hello"}}
                 *     {"to":{"topic":"news"},"data":{"n":2}}
                 */
                "application/x-ndjson": string;
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {"id":"0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c10","targets":1}
                     *     {"id":"0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c11","targets":null}
                     */
                    "application/x-ndjson": string;
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            408: components["responses"]["BodyTimeout"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    relay: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                /** @example {"key":"0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c10","expires_at_ms":1768469400000,"notification":{"to":{"users":["u1"]},"data":{"n":2}}} */
                "application/x-ndjson": string;
            };
        };
        responses: {
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /** @example {"id":"0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c11","targets":1} */
                    "application/x-ndjson": string;
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            408: components["responses"]["BodyTimeout"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    presence: {
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
                 *       "users": [
                 *         "u1",
                 *         "u2"
                 *       ]
                 *     }
                 */
                "application/json": components["schemas"]["PresenceQuery"];
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
                     *       "users": {
                     *         "u1": {
                     *           "presence": "active",
                     *           "devices": [
                     *             {
                     *               "device": "d1",
                     *               "presence": "active"
                     *             }
                     *           ]
                     *         },
                     *         "u2": {
                     *           "presence": "offline",
                     *           "devices": []
                     *         }
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["PresenceAnswer"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            408: components["responses"]["BodyTimeout"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    appleChannels: {
        parameters: {
            query?: {
                environment?: "production" | "sandbox";
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
                     *       "channels": [
                     *         {
                     *           "apns_id": "dHN0LXNyY2gtY2hubA==",
                     *           "name": "final"
                     *         },
                     *         {
                     *           "apns_id": "b3JwaGFu",
                     *           "name": null
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["AppleChannels"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            429: components["responses"]["TooManyRequests"];
            500: components["responses"]["Internal"];
            502: components["responses"]["BadGateway"];
            503: components["responses"]["Overloaded"];
        };
    };
    deleteAppleChannel: {
        parameters: {
            query?: {
                environment?: "production" | "sandbox";
            };
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
            429: components["responses"]["TooManyRequests"];
            500: components["responses"]["Internal"];
            502: components["responses"]["BadGateway"];
            503: components["responses"]["Overloaded"];
        };
    };
    broadcastState: {
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
                     *       "id": "5a1e7a0e-6f0c-4a53-9b1c-2d3e4f5a6b7c",
                     *       "channel": "final",
                     *       "notification": null,
                     *       "state": "sent",
                     *       "reason": null,
                     *       "attempts": 1,
                     *       "priority": 10,
                     *       "replaceable": false,
                     *       "accepted_at": "2026-01-15T09:30:00.000Z",
                     *       "expires_at": "2026-01-15T10:30:00.000Z",
                     *       "ended_at": "2026-01-15T09:30:00.120Z"
                     *     }
                     */
                    "application/json": components["schemas"]["BroadcastState"];
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
    channels: {
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
                     *       "channels": [
                     *         {
                     *           "name": "final",
                     *           "environment": "production",
                     *           "bundle_id": "com.example.app",
                     *           "storage": "latest",
                     *           "apns_id": "dHN0LXNyY2gtY2hubA==",
                     *           "topic": "game/7",
                     *           "waiting": 0,
                     *           "created_at": "2026-01-15T09:30:00.000Z"
                     *         }
                     *       ],
                     *       "next": null
                     *     }
                     */
                    "application/json": components["schemas"]["Channels"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    createChannel: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewChannel"];
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
                     *       "name": "final",
                     *       "environment": "production",
                     *       "bundle_id": "com.example.app",
                     *       "storage": "latest",
                     *       "apns_id": "dHN0LXNyY2gtY2hubA==",
                     *       "topic": "game/7",
                     *       "waiting": 0,
                     *       "created_at": "2026-01-15T09:30:00.000Z"
                     *     }
                     */
                    "application/json": components["schemas"]["Channel"];
                };
            };
            201: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "name": "final",
                     *       "environment": "production",
                     *       "bundle_id": "com.example.app",
                     *       "storage": "latest",
                     *       "apns_id": "dHN0LXNyY2gtY2hubA==",
                     *       "topic": "game/7",
                     *       "waiting": 0,
                     *       "created_at": "2026-01-15T09:30:00.000Z"
                     *     }
                     */
                    "application/json": components["schemas"]["Channel"];
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
            502: components["responses"]["BadGateway"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    channel: {
        parameters: {
            query?: never;
            header?: never;
            path: {
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
                     *       "name": "final",
                     *       "environment": "production",
                     *       "bundle_id": "com.example.app",
                     *       "storage": "latest",
                     *       "apns_id": "dHN0LXNyY2gtY2hubA==",
                     *       "topic": "game/7",
                     *       "waiting": 0,
                     *       "created_at": "2026-01-15T09:30:00.000Z",
                     *       "broadcasts": [
                     *         {
                     *           "id": "5a1e7a0e-6f0c-4a53-9b1c-2d3e4f5a6b7c",
                     *           "channel": "final",
                     *           "notification": null,
                     *           "state": "sent",
                     *           "reason": null,
                     *           "attempts": 1,
                     *           "priority": 10,
                     *           "replaceable": false,
                     *           "accepted_at": "2026-01-15T09:30:00.000Z",
                     *           "expires_at": "2026-01-15T10:30:00.000Z",
                     *           "ended_at": "2026-01-15T09:30:00.120Z"
                     *         }
                     *       ]
                     *     }
                     */
                    "application/json": components["schemas"]["Channel"];
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
    deleteChannel: {
        parameters: {
            query?: {
                forget?: boolean;
            };
            header?: never;
            path: {
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
            403: components["responses"]["Forbidden"];
            404: components["responses"]["NotFound"];
            409: components["responses"]["Conflict"];
            429: components["responses"]["TooManyRequests"];
            500: components["responses"]["Internal"];
            502: components["responses"]["BadGateway"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    changeChannel: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "topic": "game/7"
                 *     }
                 */
                "application/json": components["schemas"]["ChannelChange"];
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
                     *       "name": "final",
                     *       "environment": "production",
                     *       "bundle_id": "com.example.app",
                     *       "storage": "latest",
                     *       "apns_id": "dHN0LXNyY2gtY2hubA==",
                     *       "topic": "game/7",
                     *       "waiting": 0,
                     *       "created_at": "2026-01-15T09:30:00.000Z"
                     *     }
                     */
                    "application/json": components["schemas"]["Channel"];
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
    broadcast: {
        parameters: {
            query?: never;
            header?: {
                "Idempotency-Key"?: string;
            };
            path: {
                name: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["NewBroadcast"];
            };
        };
        responses: {
            202: {
                headers: {
                    "Idempotent-Replayed"?: string;
                    [name: string]: unknown;
                };
                content: {
                    /**
                     * @example {
                     *       "id": "5a1e7a0e-6f0c-4a53-9b1c-2d3e4f5a6b7c",
                     *       "channel": "final",
                     *       "notification": null,
                     *       "state": "waiting",
                     *       "reason": null,
                     *       "attempts": 0,
                     *       "priority": 10,
                     *       "replaceable": false,
                     *       "accepted_at": "2026-01-15T09:30:00.000Z",
                     *       "expires_at": "2026-01-15T10:30:00.000Z",
                     *       "ended_at": null
                     *     }
                     */
                    "application/json": components["schemas"]["BroadcastState"];
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
    invalidations: {
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
                     *       "invalidations": [
                     *         {
                     *           "seq": "7",
                     *           "at": "2026-01-15T09:30:00.000Z",
                     *           "device": "d1",
                     *           "service": "apns",
                     *           "kind": "alert",
                     *           "name": "",
                     *           "environment": "production",
                     *           "reason": "Unregistered",
                     *           "removed": true
                     *         }
                     *       ],
                     *       "next": null
                     *     }
                     */
                    "application/json": components["schemas"]["Invalidations"];
                    "application/x-ndjson": string;
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    topics: {
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
                     *       "topics": [
                     *         {
                     *           "topic": "news",
                     *           "subscribers": 1200,
                     *           "connected": 310,
                     *           "epoch": "5f3a91c2",
                     *           "offset": 42,
                     *           "log": 40,
                     *           "retained": true
                     *         }
                     *       ],
                     *       "next": null
                     *     }
                     */
                    "application/json": components["schemas"]["Topics"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    topic: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                topic: string;
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
                     *       "topic": "news",
                     *       "subscribers": 1200,
                     *       "connected": 310,
                     *       "epoch": "5f3a91c2",
                     *       "offset": 42,
                     *       "log": 40,
                     *       "retained": true
                     *     }
                     */
                    "application/json": components["schemas"]["Topic"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    retained: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                topic: string;
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
                     *       "t": "msg",
                     *       "id": "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c10",
                     *       "topic": "news",
                     *       "epoch": "5f3a91c2",
                     *       "offset": 42,
                     *       "notification": {
                     *         "title": "Goal!",
                     *         "body": "2:1"
                     *       },
                     *       "data": {
                     *         "match": 7
                     *       },
                     *       "ack": true,
                     *       "sent_at": "2026-01-15T09:30:00.000Z"
                     *     }
                     */
                    "application/json": components["schemas"]["Message"];
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
    deleteRetained: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                topic: string;
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
    itemsOfUser: {
        parameters: {
            query?: {
                after?: string;
                category?: string;
                limit?: number;
                state?: "unread" | "read" | "archived" | "all";
            };
            header?: never;
            path: {
                user: string;
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
                     *       "items": [
                     *         {
                     *           "id": "0198c6e4-3b1f-7c43-9d3a-5b1e8f6a2c10",
                     *           "state": "unread",
                     *           "category": "orders",
                     *           "created_at": "2026-01-15T09:30:00.000Z",
                     *           "changed_at": "2026-01-15T09:30:00.000Z",
                     *           "expires_at": "2026-02-14T09:30:00.000Z",
                     *           "notification": {
                     *             "title": "Your order has shipped"
                     *           },
                     *           "data": {
                     *             "order": 7
                     *           }
                     *         }
                     *       ],
                     *       "next": null
                     *     }
                     */
                    "application/json": components["schemas"]["Items"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    deleteItemsOfUser: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                user: string;
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
                     *       "deleted": 12
                     *     }
                     */
                    "application/json": components["schemas"]["ItemsDeleted"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    itemCountsOfUser: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                user: string;
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
                     *       "unread": 3,
                     *       "categories": {
                     *         "orders": 2
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["ItemCounts"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    preferencesOfUser: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                user: string;
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
                     *       "channels": [
                     *         "live",
                     *         "push"
                     *       ],
                     *       "muted_topics": [
                     *         "news"
                     *       ],
                     *       "categories": {
                     *         "promo": {
                     *           "muted": true
                     *         },
                     *         "news": {
                     *           "channels": [
                     *             "inbox"
                     *           ],
                     *           "daily_max": 3
                     *         }
                     *       },
                     *       "quiet_hours": {
                     *         "from": "22:00",
                     *         "to": "07:00",
                     *         "timezone": "Asia/Tokyo"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["Preferences"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
        };
    };
    setPreferencesOfUser: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                user: string;
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                /**
                 * @example {
                 *       "channels": [
                 *         "live",
                 *         "push"
                 *       ],
                 *       "muted_topics": [
                 *         "news"
                 *       ],
                 *       "categories": {
                 *         "promo": {
                 *           "muted": true
                 *         },
                 *         "news": {
                 *           "channels": [
                 *             "inbox"
                 *           ],
                 *           "daily_max": 3
                 *         }
                 *       },
                 *       "quiet_hours": {
                 *         "from": "22:00",
                 *         "to": "07:00",
                 *         "timezone": "Asia/Tokyo"
                 *       }
                 *     }
                 */
                "application/json": components["schemas"]["Preferences"];
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
                     *       "channels": [
                     *         "live",
                     *         "push"
                     *       ],
                     *       "muted_topics": [
                     *         "news"
                     *       ],
                     *       "categories": {
                     *         "promo": {
                     *           "muted": true
                     *         },
                     *         "news": {
                     *           "channels": [
                     *             "inbox"
                     *           ],
                     *           "daily_max": 3
                     *         }
                     *       },
                     *       "quiet_hours": {
                     *         "from": "22:00",
                     *         "to": "07:00",
                     *         "timezone": "Asia/Tokyo"
                     *       }
                     *     }
                     */
                    "application/json": components["schemas"]["Preferences"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            408: components["responses"]["BodyTimeout"];
            413: components["responses"]["TooLarge"];
            415: components["responses"]["UnsupportedMediaType"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    clearPreferencesOfUser: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                user: string;
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
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
    revokeUser: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                user: string;
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
                     *       "user": "u1",
                     *       "devices": 2
                     *     }
                     */
                    "application/json": components["schemas"]["UserRevoked"];
                };
            };
            400: components["responses"]["BadRequest"];
            401: components["responses"]["Unauthorized"];
            403: components["responses"]["Forbidden"];
            500: components["responses"]["Internal"];
            503: components["responses"]["Overloaded"];
            507: components["responses"]["DiskFull"];
        };
    };
}
