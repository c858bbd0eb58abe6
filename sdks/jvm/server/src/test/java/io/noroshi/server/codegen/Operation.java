package io.noroshi.server.codegen;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Which operations of the OpenAPI document become methods, in which class, and under which name.
 *
 * <p>A line: operation, class, method, flags. {@code safe}: repeating it has no other effect than sending it once; GET,
 * PUT and DELETE are. {@code idempotent}: has an idempotency key. {@code page=FIELD}: the answer is a page with this
 * list. {@code PARAMETER=true}: a fixed parameter. {@code status=N}: the answer that counts.
 */
record Operation(String id, String api, String method, List<String> flags) {
    static final Map<String, String> APIS = new LinkedHashMap<>();

    static {
        APIS.put("NotificationsApi", "Notifications that the service accepted.");
        APIS.put("DevicesApi", "Devices, their push tokens, and their preferences.");
        APIS.put("UsersApi", "Users: presence, items of the notification centre, preferences.");
        APIS.put("TopicsApi", "Topics and their retained messages.");
        APIS.put("CampaignsApi", "Campaigns: one message to many devices.");
        APIS.put("ActivitiesApi", "Live Activities of iOS, and Live Updates of Android.");
        APIS.put("ChannelsApi", "Broadcast channels of APNs.");
        APIS.put("AppApi", "An app, for API keys with the scope {@code admin}.");
    }

    private static final String TABLE =
            """
            publish NotificationsApi publish idempotent
            notifications NotificationsApi list page=notifications
            notification NotificationsApi get
            cancel NotificationsApi cancel
            trace NotificationsApi trace

            registerDevice DevicesApi register
            devices DevicesApi list page=devices
            device DevicesApi get
            deleteDevice DevicesApi delete
            revokeDevice DevicesApi revoke safe
            listDevicePushTokens DevicesApi pushTokens
            setDevicePushToken DevicesApi setPushToken
            removeDevicePushToken DevicesApi removePushToken
            setDeviceNamedPushToken DevicesApi setPushToken
            removeDeviceNamedPushToken DevicesApi removePushToken
            preferencesOfDevice DevicesApi preferences
            setPreferencesOfDevice DevicesApi setPreferences
            clearPreferencesOfDevice DevicesApi clearPreferences
            listDeviceEndpoints DevicesApi endpoints
            deleteDeviceEndpoint DevicesApi deleteEndpoint
            topicPermission DevicesApi topicPermission
            invalidations DevicesApi invalidations page=invalidations

            presence UsersApi presence safe
            revokeUser UsersApi revoke safe
            itemsOfUser UsersApi items page=items
            deleteItemsOfUser UsersApi deleteItems
            itemCountsOfUser UsersApi itemCounts
            preferencesOfUser UsersApi preferences
            setPreferencesOfUser UsersApi setPreferences
            clearPreferencesOfUser UsersApi clearPreferences

            topics TopicsApi list page=topics
            topic TopicsApi get
            retained TopicsApi retained
            deleteRetained TopicsApi deleteRetained

            createCampaign CampaignsApi create idempotent status=201
            createCampaign CampaignsApi createDraft idempotent status=201 draft=true
            createCampaign CampaignsApi count safe status=200 dry_run=true
            campaigns CampaignsApi list page=campaigns
            campaign CampaignsApi get
            changeCampaign CampaignsApi change
            deleteCampaign CampaignsApi delete
            estimateCampaign CampaignsApi estimate safe
            campaignRecipient CampaignsApi recipient
            startCampaign CampaignsApi start
            pauseCampaign CampaignsApi pause
            resumeCampaign CampaignsApi resume
            abortCampaign CampaignsApi abort

            startActivity ActivitiesApi start idempotent
            activities ActivitiesApi list page=activities
            activity ActivitiesApi get
            updateActivity ActivitiesApi update
            endActivity ActivitiesApi end unsafe
            activityDevice ActivitiesApi device

            channels ChannelsApi list page=channels
            createChannel ChannelsApi create status=201
            channel ChannelsApi get
            changeChannel ChannelsApi change
            deleteChannel ChannelsApi delete
            broadcast ChannelsApi broadcast idempotent
            broadcastState ChannelsApi broadcastState
            appleChannels ChannelsApi appleChannels
            deleteAppleChannel ChannelsApi deleteAppleChannel

            app AppApi get
            changeApp AppApi change
            keys AppApi keys
            createKey AppApi createKey
            revokeKey AppApi revokeKey
            quotas AppApi quotas
            appSeries AppApi series
            topicRules AppApi topicRules
            setTopicRules AppApi setTopicRules
            deleteTopicRules AppApi deleteTopicRules
            pushCredentials AppApi pushCredentials
            addPushCredential AppApi addPushCredential
            removePushCredential AppApi removePushCredential
            testPushCredential AppApi testPushCredential
            rotatePushCredential AppApi rotatePushCredential
            restorePushTokens AppApi restorePushTokens
            experiments AppApi experiments page=experiments
            experiment AppApi experiment
            putExperiment AppApi putExperiment
            killExperiment AppApi killExperiment safe
            archiveExperiment AppApi archiveExperiment
            experimentAssigned AppApi experimentAssigned
            notices AppApi notices page=notices
            notice AppApi notice
            putNotice AppApi putNotice
            endNotice AppApi endNotice
            """;

    /** Batches, which {@code Noroshi} has, and routes that are not for backends. */
    static final List<String> OTHERS = List.of("publishBatch", "importDevices", "uploadRecipients", "relay");

    static List<Operation> all() {
        return TABLE.lines()
                .filter(line -> !line.isBlank())
                .map(line -> line.trim().split(" "))
                .map(words -> new Operation(
                        words[0], words[1], words[2], Arrays.asList(words).subList(3, words.length)))
                .toList();
    }

    boolean is(String flag) {
        return flags.contains(flag);
    }

    /** The value of a flag with a value. */
    String value(String name) {
        for (String flag : flags) if (flag.startsWith(name + "=")) return flag.substring(name.length() + 1);
        return "";
    }
}
