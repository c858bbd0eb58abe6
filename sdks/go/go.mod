module github.com/noroshi/noroshi/sdks/go

go 1.26.0
