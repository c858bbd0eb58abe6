package noroshi

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
)

const (
	// Of one request. The service takes 10,000 lines and, by default, 16 MiB.
	batchLinesMax = 1_000
	batchBytesMax = 4 << 20
)

// Result is the result of one line of a batch.
type Result[T any] struct {
	// Line is its number, from 0.
	Line int
	// Value is the answer, if Err is nil.
	Value T
	// Err is why the service did not accept the line. The other lines do not depend on it.
	Err *Error
}

// PublishBatch publishes any number of notifications. It reads them as it proceeds, sends requests of at most 1,000 lines, and returns
// a result for each line, in order. A line that the service refuses has an error in its result, and is not repeated. An error of the
// sequence ends it: the lines without a result may or may not have been published. Repeat them with the same [IdempotencyKey] and the
// same lines, and nothing is published twice.
//
//	for result, err := range c.PublishBatch(ctx, slices.Values(notifications)) { … }
func (c *Client) PublishBatch(ctx context.Context, notifications iter.Seq[Notification], options ...RequestOption) iter.Seq2[Result[Receipt], error] {
	return batch[Notification, Receipt](ctx, c, notifications, slices.Concat(options, []RequestOption{keyed}), nil, "/v1/notifications/batch")
}

// ImportDevices registers any number of devices, like PublishBatch. A registration that names its device can be repeated.
func (c *Client) ImportDevices(ctx context.Context, devices iter.Seq[DeviceRegistration]) iter.Seq2[Result[Registered], error] {
	namesDevice := func(d DeviceRegistration) bool { return d.Device != "" }
	return batch[DeviceRegistration, Registered](ctx, c, devices, nil, namesDevice, "/v1/devices/batch")
}

// UploadedRecipient is the result of a line of UploadRecipients.
type UploadedRecipient struct {
	User string `json:"user"`
}

// UploadRecipients adds users to a campaign whose audience is uploaded, like PublishBatch. Repeating a line changes nothing.
func (c *Client) UploadRecipients(ctx context.Context, campaign string, recipients iter.Seq[Recipient]) iter.Seq2[Result[UploadedRecipient], error] {
	return batch[Recipient, UploadedRecipient](ctx, c, recipients, []RequestOption{repeatable}, nil, "/v1/campaigns/%s/recipients", campaign)
}

// batch sends lines in requests of bounded size. mayRepeat says which lines may be sent again without a key.
func batch[In, Out any](ctx context.Context, c *Client, lines iter.Seq[In], options []RequestOption, mayRepeat func(In) bool, path string, segments ...string) iter.Seq2[Result[Out], error] {
	return func(yield func(Result[Out], error) bool) {
		first, err := c.newCall("POST", nil, path, segments, options)
		if err != nil {
			yield(Result[Out]{}, err)
			return
		}
		first.contentType, first.accept = "application/x-ndjson", "application/x-ndjson"
		var body bytes.Buffer
		start, count, canRepeat := 0, 0, true
		// flush sends what was collected, and reports whether to proceed.
		flush := func() bool {
			call := *first
			call.body = body.Bytes()
			call.canRepeat = first.canRepeat || mayRepeat != nil && canRepeat
			if call.takesKey {
				call.idempotencyKey += "-" + strconv.Itoa(start)
			}
			var results []Result[Out]
			err := c.send(ctx, &call, func(answer []byte) (err error) {
				results, err = readResults[Out](&call, answer, start, count)
				return err
			})
			if err != nil {
				yield(Result[Out]{Line: start}, err)
				return false
			}
			for _, result := range results {
				if !yield(result, nil) {
					return false
				}
			}
			start += count
			count, canRepeat = 0, true
			body.Reset()
			return true
		}
		for line := range lines {
			text, err := json.Marshal(line)
			if err != nil {
				if count > 0 && !flush() {
					return
				}
				yield(Result[Out]{Line: start}, fmt.Errorf("noroshi: line %d: %w", start, err))
				return
			}
			if count == batchLinesMax || count > 0 && body.Len()+len(text) >= batchBytesMax {
				if !flush() {
					return
				}
			}
			body.Write(text)
			body.WriteByte('\n')
			count++
			canRepeat = canRepeat && (mayRepeat == nil || mayRepeat(line))
		}
		if count > 0 {
			flush()
		}
	}
}

func readResults[Out any](call *call, answer []byte, start, count int) ([]Result[Out], error) {
	decoder := json.NewDecoder(bytes.NewReader(answer))
	results := make([]Result[Out], 0, count)
	for {
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		var line struct {
			Error *problem `json:"error"`
		}
		result := Result[Out]{Line: start + len(results)}
		if err := json.Unmarshal(raw, &line); err != nil {
			return nil, err
		}
		if line.Error != nil {
			result.Err = line.Error.error(call.method, call.path)
		} else if err := json.Unmarshal(raw, &result.Value); err != nil {
			return nil, err
		}
		results = append(results, result)
	}
	if len(results) != count {
		return nil, fmt.Errorf("the answer has %d lines instead of %d", len(results), count)
	}
	return results, nil
}
