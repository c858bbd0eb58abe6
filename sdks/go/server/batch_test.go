package noroshi

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// echo answers each line with the data of the notification as its id, or with an error.
type echo struct {
	lines []int
	keys  []string
	// Answers before it are cut off.
	truncated int
}

func (e *echo) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	scanner := bufio.NewScanner(request.Body)
	scanner.Buffer(nil, 8<<20)
	var out strings.Builder
	count := 0
	for scanner.Scan() {
		var line struct{ Data any }
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			panic(err)
		}
		count++
		if line.Data == "bad" {
			fmt.Fprintln(&out, `{"error": {"status": 400, "code": "invalid_field", "title": "t", "detail": "d", "field": "to"}}`)
		} else {
			fmt.Fprintf(&out, "{\"id\": \"%v\", \"targets\": 1}\n", line.Data)
		}
	}
	e.lines = append(e.lines, count)
	e.keys = append(e.keys, request.Header.Get("Idempotency-Key"))
	text := out.String()
	if len(e.lines) <= e.truncated {
		text = text[:len(text)/2]
	}
	_, _ = io.WriteString(response, text)
}

func numbered(count int, read *int) iter.Seq[Notification] {
	return func(yield func(Notification) bool) {
		for n := range count {
			*read = n + 1
			if !yield(Notification{Data: n}) {
				return
			}
		}
	}
}

func TestABatchIsSentInBoundedRequests(t *testing.T) {
	e := &echo{}
	c := testClient(t, e)
	read, next := 0, 0
	for result, err := range c.PublishBatch(t.Context(), numbered(2500, &read), IdempotencyKey("k")) {
		if err != nil {
			t.Fatal(err)
		}
		if result.Line != next || result.Err != nil || result.Value.ID != fmt.Sprint(next) {
			t.Fatalf("%+v", result)
		}
		if read > next+batchLinesMax+1 {
			t.Fatalf("%d notifications were read at the result %d", read, next)
		}
		next++
	}
	if next != 2500 || !slices.Equal(e.lines, []int{1000, 1000, 500}) || !slices.Equal(e.keys, []string{"k-0", "k-1000", "k-2000"}) {
		t.Errorf("%d results of requests with %v lines and the keys %v", next, e.lines, e.keys)
	}
}

func TestLargeLinesAreSplitToo(t *testing.T) {
	e := &echo{}
	c := testClient(t, e)
	large := Notification{Data: strings.Repeat("x", 1<<20)}
	if err := drain(c.PublishBatch(t.Context(), slices.Values(slices.Repeat([]Notification{large}, 7)))); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(e.lines, []int{3, 3, 1}) {
		t.Errorf("%v", e.lines)
	}
}

func TestALineHasItsOwnError(t *testing.T) {
	c := testClient(t, &echo{})
	var errs []*Error
	for result, err := range c.PublishBatch(t.Context(), slices.Values([]Notification{{Data: 1}, {Data: "bad"}, {Data: 2}})) {
		if err != nil {
			t.Fatal(err)
		}
		errs = append(errs, result.Err)
	}
	if len(errs) != 3 || errs[0] != nil || errs[2] != nil || errs[1] == nil || errs[1].Code != CodeInvalidField || errs[1].Field != "to" {
		t.Errorf("%v", errs)
	}
}

func TestAnAnswerWithoutAllLinesIsRepeatedWithTheSameKey(t *testing.T) {
	e := &echo{truncated: 1}
	c := testClient(t, e)
	if err := drain(c.PublishBatch(t.Context(), slices.Values(slices.Repeat([]Notification{{Data: 1}}, 10)))); err != nil {
		t.Fatal(err)
	}
	if len(e.keys) != 2 || e.keys[0] != e.keys[1] || e.keys[0] == "" {
		t.Errorf("%v", e.keys)
	}
	e = &echo{truncated: 99}
	c = testClient(t, e, func(o *Options) { o.Attempts = 1 })
	var failed *NetworkError
	if err := drain(c.PublishBatch(t.Context(), slices.Values([]Notification{{Data: 1}, {Data: 2}}))); !errors.As(err, &failed) {
		t.Errorf("%v", err)
	}
}

func TestALoopCanEndEarly(t *testing.T) {
	e := &echo{}
	c := testClient(t, e)
	read := 0
	for range c.PublishBatch(t.Context(), numbered(5000, &read)) {
		break
	}
	if len(e.lines) != 1 || read != 1001 {
		t.Errorf("%v requests, %d read", e.lines, read)
	}
	if err := drain(c.PublishBatch(t.Context(), numbered(0, &read))); err != nil || len(e.lines) != 1 {
		t.Errorf("an empty batch: %v, %v", err, e.lines)
	}
}

func TestAValueThatIsNoJSONEndsTheBatchAfterTheLinesBeforeIt(t *testing.T) {
	e := &echo{}
	c := testClient(t, e)
	results := 0
	var last error
	for _, err := range c.PublishBatch(t.Context(), slices.Values([]Notification{{Data: 1}, {Data: make(chan int)}, {Data: 2}})) {
		if last = err; err == nil {
			results++
		}
	}
	if results != 1 || last == nil || !slices.Equal(e.lines, []int{1}) {
		t.Errorf("%d results, %v, %v", results, last, e.lines)
	}
}

// A registration without a name may not be repeated if the service may have processed it.
func TestAnImportIsRepeatedOnlyIfEachLineNamesItsDevice(t *testing.T) {
	for _, test := range []struct {
		devices []DeviceRegistration
		want    int
	}{
		{[]DeviceRegistration{{Device: "a"}, {Device: "b"}}, 2},
		{[]DeviceRegistration{{Device: "a"}, {User: "u"}}, 1},
	} {
		a := &attempts{statuses: []int{500, 500}}
		c := a.client(t, func(o *Options) { o.Attempts = 2 })
		if err := drain(c.ImportDevices(t.Context(), slices.Values(test.devices))); err == nil {
			t.Error("it succeeded")
		}
		if len(a.seen()) != test.want {
			t.Errorf("%+v: %d attempts", test.devices, len(a.seen()))
		}
	}
}
