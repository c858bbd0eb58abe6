package noroshi

//go:generate go run ../internal/typegen -security apiKey -package noroshi -also Receipt,Recipient,DeviceRegistration,Registered,Invalidation -omit Problem -queries -codes Code -out types.go ../../../crates/api/openapi.json
