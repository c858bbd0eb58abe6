module noroshi/scripts/firequeue

go 1.22

require (
	github.com/aws/aws-sdk-go v1.35.33
	github.com/natureglobal/firequeue v0.0.6
)

require (
	github.com/cenkalti/backoff/v4 v4.1.0 // indirect
	github.com/jmespath/go-jmespath v0.4.0 // indirect
)
