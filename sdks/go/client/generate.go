package client

//go:generate go run ../internal/typegen -security deviceToken -package client -omit Problem,Message,DeviceRegistration,Registered,Ack,Acked,Opening,Opened,Exposures,Exposed,PresenceChange,Inbox,ItemChange -codes Code -out types.go ../../../crates/api/openapi.json
